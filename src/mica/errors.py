"""Every error that mica raises on purpose.

MicaError
├── InvalidInput            a value from outside cannot be used
│   ├── InvalidEvent        an event that cannot be stored as it is
│   │   └── LawBroken       a crystal that breaks a law
│   ├── InvalidContext      a context, label or carrier that cannot be used
│   ├── InvalidSettings     a settings file or environment variable
│   └── ReservedForUser     only a user may end or replace this statement
├── UnknownEvent            no event has this id or position
│   └── UnknownBelief       no belief has this id
├── UnknownSpace            the space does not exist, and the caller did not allow creating it
├── UnknownTrail            no trail has this name or key
├── DuplicateEvent          an event with this id and other content exists
├── ClaimLost               another process claimed the job, or it is already finished
├── Backlogged              too many events wait for the store, so a new one is rejected
├── SourceFailed            a source cannot answer
├── ModelError              a call of a language model failed
│   ├── NoModel             none is configured, or its package is not installed
│   ├── ModelUnavailable    unreachable, too slow or too busy; a later retry may succeed
│   ├── ModelRefused        the provider rejects the request or the key; a retry fails too
│   ├── PromptTooLong       the request does not fit into the model's context window
│   ├── StreamBroken        a streamed answer stopped half-way; the error has its beginning
│   ├── InvalidAnswer       the answer does not have the requested form
│   └── BudgetExceeded      not called, because the cost could exceed a budget
└── StoreError              an operation of the store failed
    ├── StoreUnavailable    read-only, gone or closed
    │   └── StoreBusy       another process is writing; a retry may succeed
    ├── AccessDenied        a server rejects the token, for all spaces or for this one
    │   └── ScopeMissing    the token is valid, but lacks the scope that the operation needs
    ├── StoreFull           no space left on the device
    ├── NotAStore           the file is not a mica store
    ├── StoreDamaged        stored data fails its checksum or cannot be decoded
    └── SchemaTooNew        a newer mica wrote this store

A message says what failed, with which value, and what to do. A program reads the values from the attributes.
"""

from __future__ import annotations


class MicaError(Exception):
    """The root of every error raised by mica."""


class InvalidInput(MicaError):
    """A value from outside cannot be used."""


class InvalidEvent(InvalidInput):
    """An event cannot be stored as it is."""


class LawBroken(InvalidEvent):
    """A crystal breaks a law that all crystals obey: about its sources, level, time or length, or about overlaps."""

    def __init__(self, law: str, reason: str) -> None:
        super().__init__(f"this crystal breaks the law of {law}: {reason}")
        self.law = law
        self.reason = reason


class InvalidContext(InvalidInput):
    """An event context, a label, or a carrier (context fields that were received from a caller) cannot be used."""


class InvalidSettings(InvalidInput):
    """A settings file or environment variable cannot be used."""


class ReservedForUser(InvalidInput):
    """An agent tried to end or replace a rule, a preference or a decision that a user stated."""

    def __init__(self, belief: str, kind: str) -> None:
        super().__init__(
            f"belief {belief} is a {kind} of a user, and only a user can end or replace it; "
            "ask the user, who can say it or run `mica beliefs`"
        )
        self.belief = belief
        self.kind = kind


class UnknownEvent(MicaError):
    """No event has this id or position."""

    def __init__(self, reference: str) -> None:
        super().__init__(f"no event {reference!r} in this space; `mica events tail` lists the latest")
        self.reference = reference


class UnknownBelief(UnknownEvent):
    """No belief has this id, or an event supports no belief."""

    def __init__(self, reference: str) -> None:
        MicaError.__init__(self, f"no belief {reference} in this space; `mica beliefs` lists them with their ids")
        self.reference = reference


class UnknownTrail(MicaError):
    """No trail has this name or key."""

    def __init__(self, reference: str) -> None:
        super().__init__(f"no trail {reference!r} in this space; `mica trails list` shows them")
        self.reference = reference


class UnknownSpace(MicaError):
    """The space does not exist, and the caller did not allow creating it."""

    def __init__(self, target: str) -> None:
        super().__init__(f"there is no store {target}; `mica mark` or `mica import` creates it")
        self.target = target


class DuplicateEvent(MicaError):
    """An event with the same id but different content already exists."""

    def __init__(self, event_id: str) -> None:
        super().__init__(
            f"event {event_id!r} exists already with other content; events are never changed: emit a new one"
        )
        self.event_id = event_id


class ClaimLost(MicaError):
    """A process no longer holds a job: another process claimed it after the lease expired, or it is finished."""

    def __init__(self, kind: str, about: str, owner: str) -> None:
        work = f"{kind} {about!r}" if about else kind
        super().__init__(f"{owner!r} no longer holds {work}; drop the result, or renew the lease earlier")
        self.kind = kind
        self.about = about
        self.owner = owner


class Backlogged(MicaError):
    """Too many events are waiting to be stored, so a new event is rejected."""


class SourceFailed(MicaError):
    """A source cannot answer.

    If several sources were asked, this error is not raised. Their answer lists the failed source as missing instead.
    """

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"source {source!r}: {reason}")
        self.source = source
        self.reason = reason


class ModelError(MicaError):
    """A call of a language model failed."""


class NoModel(ModelError):
    """No model is configured for this tier (kind of task), or its package is not installed."""

    def __init__(self, tier: str, reason: str | None = None) -> None:
        super().__init__(
            reason or f'no model is configured for the tier {tier!r}; set {tier} = "provider:model" in [models.tiers]'
        )
        self.tier = tier


class ModelUnavailable(ModelError):
    """A model is unreachable, too slow or too busy. `was_called` is False if no request was sent to it."""

    def __init__(
        self, message: str, *, model: str, retry_after_s: float | None = None, was_called: bool = True
    ) -> None:
        super().__init__(message)
        self.model = model
        self.retry_after_s = retry_after_s
        self.was_called = was_called


class ModelRefused(ModelError):
    """A provider rejects the request or the key. A retry would fail too."""

    def __init__(self, message: str, *, model: str, status: int | None = None) -> None:
        super().__init__(message)
        self.model = model
        self.status = status


class PromptTooLong(ModelError):
    """A request does not fit into the context window of a model."""

    def __init__(self, model: str, *, tokens: int | None = None, window_tokens: int | None = None) -> None:
        size = f"about {tokens:,} tokens with the answer" if tokens else "more"
        window = f"{window_tokens:,} tokens" if window_tokens else "a limited number of tokens"
        super().__init__(
            f"{model} can take {window}, and this request needs {size}; ask in parts, or name a larger model"
        )
        self.model = model
        self.tokens = tokens
        self.window_tokens = window_tokens


class StreamBroken(ModelError):
    """A streamed answer stopped half-way. `partial` is the text received so far."""

    def __init__(self, model: str, partial: str, reason: str) -> None:
        super().__init__(
            f"the answer of {model} broke off after {len(partial):,} characters ({reason}); "
            "they are kept in `partial`; ask again for the whole answer"
        )
        self.model = model
        self.partial = partial
        self.reason = reason


class InvalidAnswer(ModelError):
    """The answer of a model, `text`, does not have the requested form, even after a request to correct it."""

    def __init__(self, model: str, reason: str, text: str = "") -> None:
        super().__init__(f"{model} gave no usable answer: {reason}; ask again, or name another model for this tier")
        self.model = model
        self.reason = reason
        self.text = text


class BudgetExceeded(ModelError):
    """A model was not called, because the call could cost more than a budget allows.

    `payer` is the name of the agent for which the model should have been called; None if there was none.
    """

    def __init__(self, message: str, *, payer: str | None) -> None:
        super().__init__(message)
        self.payer = payer


class StoreError(MicaError):
    """An operation of the store failed."""


class StoreUnavailable(StoreError):
    """The store is read-only, gone or closed."""


class StoreBusy(StoreUnavailable):
    """Another process is writing to the store; a retry may succeed."""


class AccessDenied(StoreError):
    """A server rejects the token, for all spaces or for this one."""


class ScopeMissing(AccessDenied):
    """A token is valid, but lacks the scope (read, write or admin) that an operation needs."""

    def __init__(self, scope: str, *, scopes: str) -> None:
        option = " --scope admin" if scope == "admin" else ""
        flag = " --admin" if scope == "admin" else ""
        super().__init__(
            f"this needs the scope {scope}, and this token has only {scopes}; on the server, `mica server token make "
            f"NAME{option}` makes a token with it, and `mica server open{flag}` a link for a browser"
        )
        self.scope = scope
        self.scopes = scopes


class StoreFull(StoreError):
    """No space is left on the device of the store."""


class NotAStore(StoreError):
    """The file is not a mica store."""


class StoreDamaged(StoreError):
    """Stored data fails its checksum or cannot be decoded. Nothing was changed; `path` is the file.

    `what` names the damaged part as far as it is known, such as a table, an index or the write-ahead log.
    """

    def __init__(self, path: str, what: str, remedy: str | None = None) -> None:
        super().__init__(
            f"{path} is damaged: {what}; "
            + (remedy or "keep a copy, see `mica upkeep verify`, then restore a backup or export what can be read")
        )
        self.path = path
        self.what = what


class SchemaTooNew(StoreError):
    """A newer mica wrote this store."""
