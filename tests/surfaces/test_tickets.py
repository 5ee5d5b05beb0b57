"""The command line remembers a claim for whoever made it: scripts need no token (P12b), strangers get nothing (P12)."""

from __future__ import annotations

import os
import shlex
import stat

from hermes_kanban.kernel.caller import Ticket
from hermes_kanban.kernel.finish import Handoff
from hermes_kanban.model import status as s
from tests.surfaces.hermes import Hermes
from tests.world import World


def test_one_script_claims_works_and_completes(hermes: Hermes) -> None:
    task = hermes.create()
    script = """set -e
    ws=$(hermes kanban claim "$1" --ttl 900 | tail -1)
    cd "$ws"
    echo result > file
    if ! hermes kanban heartbeat "$1" --note half; then exit 9; fi
    hermes kanban comment "$1" fact || exit 8
    hermes kanban complete "$1" --summary done"""
    answer = hermes.sh(script, task)
    assert answer.code == 0, answer
    assert hermes.status(task) == s.DONE
    assert (hermes.home / "kanban" / "workspaces" / task / "file").read_text(encoding="utf-8") == "result\n"
    assert [event["actor"].split(":")[0] for event in hermes.ask("events", "--task", task)][2:] == ["bridge"] * 3


def test_another_script_with_the_same_id_gets_nothing(hermes: Hermes) -> None:  # P12
    task = hermes.create()
    with hermes.script() as owner, hermes.script() as other:
        assert owner(f"hermes kanban claim {task}")[0] == 0
        before = hermes.ask("show", task)
        for verb in ("heartbeat ID", "complete ID --summary x", "block ID x", "request-review ID --summary x"):
            code, said = other(f"hermes kanban {verb.replace('ID', task)}")
            assert code == 5, said
            assert "hint: " in said
        after = hermes.ask("show", task)
        assert {k: v for k, v in after.items() if k != "events"} == {k: v for k, v in before.items() if k != "events"}
        assert hermes.kinds(task)[2:] == ["refused"] * 4
        assert owner(f"hermes kanban complete {task} --summary mine")[0] == 0


def test_a_ticket_is_the_owner_s_alone(hermes: Hermes) -> None:
    task = hermes.create()
    hermes.sh("hermes kanban claim $1", task)
    folder = hermes.home / "kanban" / "tickets"
    (ticket,) = folder.iterdir()
    assert stat.S_IMODE(ticket.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_claim_through_the_beginning_of_an_id_is_found_again(hermes: Hermes) -> None:
    task = hermes.create()
    script = (
        'hermes kanban claim "$1" >/dev/null && hermes kanban heartbeat "$2" && hermes kanban complete "$1" --summary x'
    )
    assert hermes.sh(script, task[:7], task).code == 0


def test_python_s_shell_finds_the_claim(hermes: Hermes) -> None:
    task = hermes.create()
    program = (
        "import subprocess, sys; run = lambda c: subprocess.run(c, shell=True, check=True)\n"
        f"run('hermes kanban claim {task}'); run('hermes kanban heartbeat {task} && true')\n"
        f"run('hermes kanban complete {task} --summary x')"
    )
    answer = hermes.run(["python", "-c", program])
    assert answer.code == 0, answer
    assert hermes.status(task) == s.DONE


def test_an_exported_claim_goes_through_the_environment(hermes: Hermes) -> None:
    task = hermes.create()
    with hermes.script() as owner, hermes.script() as elsewhere:
        code, printed = owner(f"hermes kanban claim {task} --export 2>/dev/null")
        names = [line.split("=")[0] for line in printed.splitlines()]
        assert code == 0
        assert names == [f"export HERMES_KANBAN_{n}" for n in ("RUN_ID", "CLAIM_LOCK", "WORKSPACE")]
        assert elsewhere(f"hermes kanban heartbeat {task}")[0] == 5
        assert elsewhere(printed)[0] == 0
        assert elsewhere(f"hermes kanban heartbeat {task} && hermes kanban complete {task} --summary x")[0] == 0


def test_an_exported_path_is_one_word_of_a_shell(hermes: Hermes) -> None:
    place = hermes.home / "it's; $(touch pwned) `x`"
    place.mkdir()
    task = hermes.create("x", "--workspace", f"dir:{place}")
    printed = hermes.ok("claim", task, "--export").splitlines()
    assert shlex.split(printed[2]) == ["export", f"HERMES_KANBAN_WORKSPACE={place}"]
    answer = hermes.sh(f'{printed[2]}\ncd "$HERMES_KANBAN_WORKSPACE" && pwd && ls')
    assert answer.out == f"{place}\n"


def test_run_says_which_claim_is_meant(hermes: Hermes) -> None:  # P12b
    task = hermes.create()
    with hermes.script() as owner:
        owner(f"hermes kanban claim {task} --ttl 60")
        assert owner(f"hermes kanban heartbeat {task} --run 1")[0] == 0
        code, said = owner(f"hermes kanban heartbeat {task} --run 2")
        assert code == 5
        assert "no ticket of run 2" in said
        assert owner(f"hermes kanban heartbeat {task} --run abc")[0] == 2
        assert owner(f"hermes kanban heartbeat {task} --run 0")[0] == 7
        assert hermes("heartbeat", task, "--run", "1").code == 5


def test_a_claim_without_a_ticket_stands_where_its_answer_holds_the_lock(hermes: Hermes) -> None:
    task = hermes.create()
    (hermes.home / "kanban" / "tickets").write_text("in the way", encoding="utf-8")
    answer = hermes("claim", task, "--json")
    assert answer.code == 0
    (warning,) = answer.json["warnings"]
    assert "HERMES_KANBAN_RUN_ID and HERMES_KANBAN_CLAIM_LOCK" in warning
    assert answer.json["claim_lock"] not in answer.err  # tokens stay out of logs
    later = hermes.set(HERMES_KANBAN_RUN_ID="1", HERMES_KANBAN_CLAIM_LOCK=answer.json["claim_lock"])
    assert later.ok("complete", task, "--summary", "x") == f"{task} {s.DONE}"
    exported = hermes("claim", hermes.create(), "--export")
    assert (exported.code, exported.out.count("export ")) == (0, 3)


def test_a_claim_that_nobody_could_go_on_with_is_given_back(hermes: Hermes) -> None:  # P12b
    task = hermes.create()
    (hermes.home / "kanban" / "tickets").write_text("in the way", encoding="utf-8")
    answer = hermes("claim", task)
    assert (answer.code, answer.out) == (8, "")
    assert "was given back" in answer.err
    assert "hint: " in answer.err
    shown = hermes.ask("show", task)
    assert (shown["status"], shown["eligible_reason"], shown["consecutive_failures"]) == (s.READY, s.TICKET, 0)
    (run,) = shown["runs"]
    assert (run["outcome"], run["end_reason"]) == (s.RECLAIMED, s.TICKET)
    assert run["claim_lock"] not in answer.err
    assert hermes.ok("verify") == "ok"


def test_a_workspace_that_cannot_be_prepared_leaves_nothing_running(hermes: Hermes) -> None:  # P11
    place = hermes.home / "project"
    place.mkdir()
    task = hermes.create("x", "--workspace", f"dir:{place}")
    place.rmdir()
    answer = hermes("claim", task)
    assert (answer.code, answer.out) == (7, "")
    shown = hermes.ask("show", task)
    assert (shown["status"], shown["eligible_reason"]) == (s.READY, s.WORKSPACE)
    assert hermes.ok("verify") == "ok"
    assert not (hermes.home / "kanban" / "tickets").exists()


def test_a_claim_without_dispatcher_is_free_again_when_its_time_is_over(hermes: Hermes) -> None:  # P10, P44
    task = hermes.create()
    with hermes.script() as late, hermes.script() as other:
        late(f"hermes kanban claim {task} --ttl 1")
        expires = hermes.ask("show", task)["claim_expires"]
        while not (row := hermes.ask("list", "--status", "ready")):
            os.sched_yield()
        assert (row[0]["lease_over"], row[0]["status"]) == (True, s.RUNNING)
        assert "(lease over)" in hermes.ok("list")
        assert other("hermes kanban claim --next --ttl 60")[0] == 0
        assert hermes.ask("show", task)["claim_expires"] > expires
        assert late(f"hermes kanban complete {task} --summary late")[0] == 5
        assert other(f"hermes kanban complete {task} --summary mine")[0] == 0
    assert [run["outcome"] for run in hermes.ask("runs", task)] == [s.RECLAIMED, s.COMPLETED]


def test_a_script_may_judge_what_its_child_script_handed_over(hermes: Hermes) -> None:  # P12b, P30
    script = """set -e
    ( export HERMES_KANBAN_NAME=kid
      hermes kanban claim "$1" >/dev/null
      hermes kanban request-review "$1" --summary "please look" >/dev/null
      true )
    HERMES_KANBAN_NAME=boss hermes kanban request-changes "$1" "not yet" """
    task = hermes.create()
    answer = hermes.sh(script, task)
    assert answer.code == 0, answer
    assert hermes.status(task) == s.READY


def test_a_repeated_call_is_answered_once_more(hermes: Hermes) -> None:  # P12
    script = 'hermes kanban claim "$1" >/dev/null; for i in 1 2; do hermes kanban complete "$1" --summary one; done'
    answer = hermes.sh(script, hermes.create())
    assert answer.code == 0, answer
    assert "already" in answer.err


def test_a_new_act_is_not_taken_for_a_repeated_call(hermes: Hermes) -> None:  # P12
    script = """set -e
    hermes kanban claim "$1" >/dev/null
    hermes kanban complete "$1" --summary one
    hermes kanban reopen "$1"
    hermes kanban complete "$1" --summary two"""
    task = hermes.create()
    answer = hermes.sh(script, task)
    assert answer.code == 5, answer  # its run has ended: it must claim again
    assert hermes.status(task) == s.READY


def test_a_person_at_a_terminal_may_act_anew(world: World) -> None:  # P12, P12b
    claim = world.person.claim(world.card().id)
    me = world.board(tickets=(Ticket(claim.task.id, claim.run.id, claim.run.claim_lock or ""),))
    me.complete(claim.task.id, Handoff("one"))
    assert me.complete(claim.task.id, Handoff("one")).already
    me.reopen(claim.task.id)
    again = me.complete(claim.task.id, Handoff("two"))
    assert (again.already, again.task.status) == (False, s.DONE)
    assert [run.summary for run in me.runs(claim.task.id)] == ["one", "two"]
