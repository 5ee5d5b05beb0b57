"""The command lines of the seeds work as they are printed there."""

from __future__ import annotations

from hermes_kanban.model import status as s
from tests.surfaces.hermes import Hermes, line_of

BLOCK = '''hermes kanban block <task_id> "cause: spec undecided
what happened: 仕様書のセクション 3.2 で A 案と B 案が併記されたまま。実装側が判断する根拠が無い。
options: A / B / C
recommendation: A (既存システムとの互換性で優位)
next action needed: human decision on which option to implement"'''
COMPLETE = r"""hermes kanban complete <task_id> \
  --summary "Implemented API endpoint and added integration test." \
  --metadata '{"changed_files":["src/api/foo.ts","test/api/foo.test.ts"]}'"""


def test_the_bridge_s_protocol(hermes: Hermes) -> None:
    hermes.ok("boards", "create", "qi-portal")
    bridge = hermes.set(HERMES_KANBAN_BOARD="qi-portal")
    task = bridge.create("実装", "--assignee", "claude-code-bridge")
    blocked = bridge.create("二つ目", "--assignee", "claude-code-bridge", "--priority", "-1")
    with bridge.script() as script:

        def run(line: str, card: str = task) -> str:
            code, said = script(line.replace("<task_id>", card).replace("<slug>", "qi-portal"))
            assert code == 0, said
            return said

        found = run("hermes kanban list --board <slug> --assignee claude-code-bridge --status ready --json")
        assert found.startswith(f'[{{"seq":1,"id":"{task}"')
        assert run("ws=$(hermes kanban claim <task_id> --ttl 900); echo $ws").splitlines()[-1].endswith(task)
        run("hermes kanban show <task_id>")
        assert "実装" in run("hermes kanban context <task_id>")
        run('hermes kanban heartbeat <task_id> --note "step 2 of 4"')
        run('hermes kanban comment <task_id> --author claude-code-bridge "本文"')
        assert run(COMPLETE).splitlines()[-1] == f"{task} {s.DONE}"
        run("hermes kanban claim <task_id> --ttl 900", blocked)
        assert run(BLOCK, blocked) == f"{blocked} {s.BLOCKED}"
    shown = bridge.ask("show", task)
    assert shown["comments"][0]["author"] == "claude-code-bridge"
    assert shown["runs"][0]["metadata"] == {"changed_files": ["src/api/foo.ts", "test/api/foo.test.ts"]}
    fields = bridge.ask("show", blocked)["block_fields"]
    assert (fields["cause"], fields["options"]) == ("spec undecided", ["A", "B", "C"])
    assert bridge.ok("verify") == "ok"


def test_watching_as_a_bridge(hermes: Hermes) -> None:
    hermes.create("x", "--assignee", "claude-code-bridge")
    process = hermes.start("watch", "--assignee", "claude-code-bridge", "--interval", "5", "--since", "0")
    assert '"kind":"created"' in line_of(process)
    process.kill()
    process.communicate()


def test_cards_with_skills(hermes: Hermes) -> None:
    script = r"""hermes kanban create "translate README to Japanese" --assignee linguist --skill translation
    hermes kanban create "audit auth flow" --assignee reviewer \
      --skill security-pr-audit --skill github-code-review"""
    assert hermes.sh(script).code == 0
    assert [row["skills"] for row in hermes.ask("list", "--sort", "seq")] == [
        ["translation"],
        ["security-pr-audit", "github-code-review"],
    ]


def test_an_idempotency_key_from_a_script(hermes: Hermes) -> None:
    script = r"""board=default title="週次監査"
    for i in 1 2; do hermes kanban create "$title" --board "$board" \
      --idempotency-key "$(echo -n "${board}:${title}:$(date +%Y-%m-%d)" | sha256sum | cut -c1-16)" -q; done"""
    first, second = hermes.sh(script).out.split()
    assert first == second


def test_raw_reads_of_the_board_s_file_still_work(hermes: Hermes) -> None:
    task = hermes.create("x")
    hermes.ok("claim", task)
    program = '''import sqlite3, sys
c = sqlite3.connect(f'file:{sys.argv[1]}?mode=ro', uri=True)
print(c.execute("""SELECT id, title, assignee, last_heartbeat_at
   FROM tasks WHERE status='running';""").fetchone()[:2])'''
    assert hermes.run(["python", "-c", program, str(hermes.home / "kanban.db")]).out == f"('{task}', 'x')\n"
