"""What `sidecar.db` holds: its tables, and the version of their shape."""

from __future__ import annotations

from typing import Final

SCHEMA_VERSION: Final = 4

_TASKS_OF_OWNER: Final = (
    "CREATE INDEX tasks_of_owner ON tasks (session_id, owner, ended_at, state, context_id)"
    " WHERE ended_at IS NOT NULL"
)
_MADE_BY_TASK: Final = (
    "CREATE INDEX events_that_make ON events (task_id, seq) WHERE kind IN ('artifact', 'reply')"
)
_MADE: Final = """CREATE TABLE made (
        task_id TEXT NOT NULL,        -- of a task that is kept longer than its events:
        seq INTEGER NOT NULL,         -- those of them that made its artifacts
        kind TEXT NOT NULL,
        data TEXT NOT NULL,
        PRIMARY KEY (task_id, seq)
    ) WITHOUT ROWID"""

_AGENT_KEYS: Final = """CREATE TABLE agent_keys (
        id TEXT NOT NULL PRIMARY KEY,
        directory BLOB NOT NULL,      -- with the name, the capsule that it is for
        name TEXT NOT NULL,
        created_at REAL NOT NULL,
        expires_at REAL,
        end_users INTEGER NOT NULL,   -- whether it may speak for them
        operator INTEGER NOT NULL,
        revoked_at REAL
    )"""
_AGENT_KEY_SECRETS: Final = """CREATE TABLE agent_key_secrets (
        sha256 BLOB NOT NULL PRIMARY KEY,    -- all that is known of a secret
        key_id TEXT NOT NULL,
        created_at REAL NOT NULL,
        until REAL                    -- of those that have a successor
    ) WITHOUT ROWID"""

_EVERRUNS: Final = (
    """CREATE TABLE everruns_sessions (
        id TEXT NOT NULL PRIMARY KEY, -- the context of its tasks, too
        session_id TEXT NOT NULL,     -- of the capsule
        owner TEXT NOT NULL,
        title TEXT,
        created_at REAL NOT NULL,
        active_at REAL NOT NULL,
        last_turn TEXT,               -- how the turn went that ended last
        sequence INTEGER NOT NULL DEFAULT 0  -- of its newest event, kept or not
    )""",
    "CREATE INDEX everruns_by_activity ON everruns_sessions (session_id, owner, active_at, id)",
    """CREATE TABLE everruns_events (
        everruns_id TEXT NOT NULL,
        sequence INTEGER NOT NULL,    -- dense from 1
        type TEXT NOT NULL,
        at REAL NOT NULL,
        data TEXT NOT NULL,           -- JSON
        PRIMARY KEY (everruns_id, sequence)
    ) WITHOUT ROWID""",
    """CREATE TABLE everruns_replies (
        session_id TEXT NOT NULL,     -- of the capsule
        owner TEXT NOT NULL,
        key TEXT NOT NULL,            -- the Idempotency-Key
        digest BLOB NOT NULL,         -- of what was asked for
        body BLOB NOT NULL,
        at REAL NOT NULL,
        PRIMARY KEY (session_id, owner, key)
    ) WITHOUT ROWID""",
    "CREATE INDEX everruns_replies_by_age ON everruns_replies (at)",
)

SCHEMA: Final = (
    """CREATE TABLE capsules (
        id TEXT NOT NULL PRIMARY KEY,
        directory BLOB NOT NULL,      -- os.fsencode of the path: names need not be UTF-8
        name TEXT NOT NULL,
        session_id TEXT NOT NULL UNIQUE,
        created_at REAL NOT NULL,     -- Unix seconds, here and below
        gone_at REAL,
        UNIQUE (directory, name)
    )""",
    """CREATE TABLE ports (
        directory BLOB NOT NULL PRIMARY KEY,
        port INTEGER NOT NULL,
        updated_at REAL NOT NULL
    )""",
    """CREATE TABLE sessions (
        id TEXT NOT NULL PRIMARY KEY,
        generation INTEGER NOT NULL   -- tasks that ran and ended
    )""",
    """CREATE TABLE tasks (
        seq INTEGER PRIMARY KEY,      -- order of arrival
        id TEXT NOT NULL UNIQUE,
        session_id TEXT NOT NULL,
        context_id TEXT NOT NULL,
        owner TEXT NOT NULL,
        state TEXT NOT NULL,
        status TEXT,                  -- text of the last status
        output TEXT,                  -- the reply of a task that is over, the prompt of a waiting one
        request TEXT NOT NULL,        -- the message that started it, JSON
        created_at REAL NOT NULL,
        ended_at REAL,                -- NULL while it lives
        waiting_since REAL,           -- NULL unless it waits for input
        turn INTEGER NOT NULL DEFAULT 0,     -- 0 until it starts
        attempt INTEGER NOT NULL DEFAULT 0,
        began INTEGER NOT NULL DEFAULT 0,    -- seq of the event that its turn began with
        spoken TEXT,                  -- text of its turn that the events kept do not hold any more
        note TEXT,                    -- its backend's own
        status_at REAL,               -- of its last status
        behind INTEGER NOT NULL DEFAULT 0,   -- seq of the session's last event when it came
        shown INTEGER NOT NULL DEFAULT 1,    -- number of the newest event at its last status, or trimmed since
        states TEXT NOT NULL DEFAULT ''      -- where it stood: a line for each, with seq, state and time
    )""",
    "CREATE INDEX tasks_by_end ON tasks (session_id, ended_at)",
    _TASKS_OF_OWNER,
    """CREATE TABLE inputs (
        task_id TEXT NOT NULL,
        seq INTEGER NOT NULL,         -- of the event that says that it came
        message TEXT NOT NULL,        -- JSON; the first message of a task is its request
        prompt TEXT,                  -- what it answers
        PRIMARY KEY (task_id, seq)
    ) WITHOUT ROWID""",
    """CREATE TABLE events (
        session_id TEXT NOT NULL,
        seq INTEGER NOT NULL,         -- dense from 1 over all events of the session
        frame INTEGER,                -- the murmur id: dense from 1 over the events that its streams number
        task_id TEXT NOT NULL,
        context_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        data TEXT NOT NULL,           -- JSON, in no dialect
        at REAL NOT NULL,
        number INTEGER,               -- dense from 2 over the events that streams of its task show
        PRIMARY KEY (session_id, seq)
    ) WITHOUT ROWID""",
    "CREATE UNIQUE INDEX events_by_frame ON events (session_id, frame) WHERE frame IS NOT NULL",
    _MADE_BY_TASK,
    _MADE,
    _AGENT_KEYS,
    _AGENT_KEY_SECRETS,
    *_EVERRUNS,
)
"""Of this version. The registry writes `capsules` and `ports`; `auth/` the keys, `doors/` what a view keeps of its own; `tasks/` writes the rest."""

UPGRADES: Final = {
    1: (
        "ALTER TABLE tasks ADD COLUMN status_at REAL",
        "ALTER TABLE inputs ADD COLUMN prompt TEXT",
        _TASKS_OF_OWNER,
        _MADE_BY_TASK,
        _MADE,
    ),
    2: (_AGENT_KEYS, _AGENT_KEY_SECRETS, *_EVERRUNS),
    3: (
        "ALTER TABLE tasks ADD COLUMN behind INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE tasks ADD COLUMN shown INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE tasks ADD COLUMN states TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE events ADD COLUMN number INTEGER",
    ),
}
"""What makes the next version out of each earlier one."""
