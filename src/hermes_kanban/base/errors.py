"""Every refusal is one class: a stable code, an exit code, an HTTP status, a message and a hint.

Surfaces translate through these fields and never read the text. A refusal changes nothing. Hints never hold
a destructive command: agents obey them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Refusal(Exception):
    """A request that the board turned down.

    Args:
        message: what is wrong, for a person.
        hint: what to do next.
        fields: machine-readable facts (ids, states, ranges).
    """

    code = "refused"
    exit_code = 1
    http_status = 500

    def __init__(self, message: str, hint: str = "", **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.fields = fields

    def as_dict(self) -> dict[str, Any]:
        """Return the body that tools and REST answer with."""
        return {"code": self.code, "message": self.message, "hint": self.hint, **self.fields}


class Unexpected(Refusal):
    """A fault of ours: anything that no class below names."""

    code = "unexpected"


# --- 2: wrong usage -----------------------------------------------------------------------------------------
class Usage(Refusal):
    """The call itself is wrong: an unknown flag, a missing argument, a contradiction."""

    code = "usage"
    exit_code = 2
    http_status = 400


# --- 3: not found -------------------------------------------------------------------------------------------
class NotFound(Refusal):
    """Something that was named is not there."""

    code = "not_found"
    exit_code = 3
    http_status = 404


class TaskNotFound(NotFound):
    """No task has this id."""

    code = "task_not_found"


class RunNotFound(NotFound):
    """No run has this number."""

    code = "run_not_found"


class BoardNotFound(NotFound):
    """No board has this name."""

    code = "board_not_found"


class AttachmentNotFound(NotFound):
    """The card has no attachment of this number."""

    code = "attachment_not_found"


# --- 4: refused by state ------------------------------------------------------------------------------------
class StateRefusal(Refusal):
    """The board's state does not allow this now."""

    code = "state"
    exit_code = 4
    http_status = 409


class WrongState(StateRefusal):
    """The verb does not work from the task's state."""

    code = "wrong_state"


class NotClaimable(StateRefusal):
    """Somebody else holds the card, or it must wait."""

    code = "not_claimable"


class AtCapacity(NotClaimable):
    """A cap on running attempts is reached (P15)."""

    code = "at_capacity"


class NothingReady(StateRefusal):
    """No card fits the request."""

    code = "nothing_ready"


class Gated(StateRefusal):
    """An open parent stands in the way."""

    code = "gated"


class ChildRunning(StateRefusal):
    """A link onto a child that has started."""

    code = "child_running"


class Cycle(StateRefusal):
    """The link would close a circle."""

    code = "cycle"


class OpenChildren(StateRefusal):
    """Children would wait for ever (P6)."""

    code = "open_children"


class BoardExists(StateRefusal):
    """The name is taken."""

    code = "board_exists"


# --- 5 and 6: fencing and rights ----------------------------------------------------------------------------
class ClaimLost(Refusal):
    """The caller's run does not hold the card (P12)."""

    code = "claim_lost"
    exit_code = 5
    http_status = 409


class Forbidden(Refusal):
    """The actor may not do this (P70)."""

    code = "forbidden"
    exit_code = 6
    http_status = 403


class SelfReview(Forbidden):
    """Who did the work may not approve it (P30)."""

    code = "self_review"


# --- 7: invalid values --------------------------------------------------------------------------------------
class InvalidValue(Refusal):
    """A value is out of its range or not of its form."""

    code = "invalid_value"
    exit_code = 7
    http_status = 422


class BlockTemplate(InvalidValue):
    """A block reason lacks parts (P25)."""

    code = "block_template"


class UnknownCards(InvalidValue):
    """Cards that a worker says it made are not its own (P23)."""

    code = "unknown_cards"


class UnknownAssignee(InvalidValue):
    """Nobody answers to this name (P50b)."""

    code = "unknown_assignee"


class KeyRequired(InvalidValue):
    """A script must give an idempotency key (P51)."""

    code = "key_required"


class WorkspaceFailed(InvalidValue):
    """The place to work in could not be prepared (P11)."""

    code = "workspace_failed"


class FileRefused(InvalidValue):
    """A file cannot be attached: it is missing, not a plain file, out of bounds, or changes under the reader (P61)."""

    code = "file_refused"


class AttachmentTooLarge(InvalidValue):
    """More bytes than one attachment may have (P61)."""

    code = "attachment_too_large"
    http_status = 413


class UrlRefused(InvalidValue):
    """Nothing is fetched from this address, or it has not what was asked for (P61)."""

    code = "url_refused"


class ConfigInvalid(InvalidValue):
    """config.yaml cannot be used."""

    code = "config_invalid"


# --- 8: try again -------------------------------------------------------------------------------------------
class Retryable(Refusal):
    """Safe to try again."""

    code = "retry"
    exit_code = 8
    http_status = 503


class Busy(Retryable):
    """The write lock did not come free in time."""

    code = "busy"


class DiskFull(Retryable):
    """No room on the disk."""

    code = "disk_full"


class StoreIo(Retryable):
    """The disk or the connection failed."""

    code = "io_error"


class FetchFailed(Retryable):
    """A download did not come to its end (P61)."""

    code = "fetch_failed"


# --- 9: the store itself ------------------------------------------------------------------------------------
class StoreRefused(Refusal):
    """The store cannot be used; trying again does not help.

    The field `reason` is one of `not_a_board`, `foreign_board`, `damaged`, `newer_schema`,
    `network_filesystem`, `read_only`, `unsafe_sqlite`, `foreign_folder`.
    """

    code = "store_refused"
    exit_code = 9
    http_status = 503
