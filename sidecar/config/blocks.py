"""The blocks of the configuration file, with their defaults. Durations are seconds and sizes bytes here."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from sidecar import shapes
from sidecar.config import backend_values as b
from sidecar.config import quantities
from sidecar.config import values as v
from sidecar.shapes import key, required


def duration(written: str, description: str) -> Any:
    """Make a key whose default is a duration."""
    return key(quantities.parse_duration(written), description, written=written)


def size(written: str, description: str) -> Any:
    """Make a key whose default is a size."""
    return key(quantities.parse_size(written), description, written=written)


class Block(shapes.Block):
    """A block of keys: none unknown; left blank it is all defaults."""

    BLANK: ClassVar[bool] = True


class Root(Block):
    """A directory in which capsules are looked for."""

    path: v.Path = required("A directory that holds capsule directories, or is one.")
    workspace: v.Workspace = key(
        ".", "The capsule's workspace, relative to its directory; {id} and {session_id} may be used."
    )
    depth: v.Depth = key(1, "Levels below the root in which capsules are looked for.")


class Tls(Block):
    """A certificate and its key, which are taken anew when their files change. Neither goes without the other."""

    cert: v.Path | None = key(None, "The certificate in PEM, with those behind it that lead to a known one.")
    key: v.Path | None = key(None, "Its private key in PEM, without a passphrase.")

    @property
    def paths(self) -> tuple[str, str]:
        """Both, where both are given."""
        return self.cert or "", self.key or ""


class Listen(Block):
    """The capsules' own ports."""

    hosts: v.Hosts = key(
        ("127.0.0.1",), "Host or address to listen on, or a list of them.", written="127.0.0.1", alias="host"
    )
    ports: v.Ports = key(
        quantities.PortRange(24000, 31999), "Ports to choose from, both ends included.", written="24000-31999"
    )
    advertise: v.AdvertisedHost = key("localhost", "The host that cards name.")
    public_url: v.PublicUrl | None = key(
        None,
        "The base of the URLs on A2A cards where a proxy stands in front; {id} and {port} may be used; "
        "null: http://<advertise>:<port>, or https:// under tls.",
    )
    internal_port: v.Flag = key(
        default=False,
        description="Take the manifest's network.internal_port, the capsule's own runtime permitting.",
    )
    allowed_hosts: tuple[v.AllowedHost, ...] = key(
        (), "Further values of the Host header that are let in.", written=[]
    )
    allowed_origins: tuple[v.Origin, ...] = key(
        (), "Further values of the Origin header that are let in.", written=[]
    )
    trusted_proxies: v.Networks = key(
        (),
        "Addresses and networks of proxies whose forwarded headers are believed; from others they are ignored.",
        written=[],
    )
    tls: Tls | None = key(None, "Speak TLS; null: plain HTTP.")


class Desk(Block):
    """The one listener for the registry as a whole."""

    host: v.Host = key("127.0.0.1", "Host or address to listen on.")
    port: v.PortOrAny = key(7410, "Port to listen on; 0 takes a free one, and run.json says which.")
    auth: Literal["token", "none"] = key(
        "token", "Who may use what is the operator's: token holders, or anyone."
    )
    metrics: Literal["open", "token"] = key("open", "Who may read /metrics.")
    public_url: v.BaseUrl | None = key(
        None, "The base URL of the page where a proxy stands in front; null: where the desk listens."
    )
    allowed_hosts: tuple[v.AllowedHost, ...] = key(
        (), "Further values of the Host header that are let in.", written=[]
    )
    tls: Tls | None = key(None, "Speak TLS; null: plain HTTP.")


class Watch(Block):
    """How changes on disk are found."""

    tick: v.SomeSeconds = duration("2s", "Time between two looks at everything, whatever the hints say.")
    settle: v.Milliseconds = duration("40ms", "A file is read once it has been still for so long.")
    grace: v.Seconds = duration("2s", "A manifest that is gone is served for so long; it may be coming back.")
    force_tick: v.Flag = key(default=False, description="No inotify, the tick alone.")


class Tasks(Block):
    """How many tasks run, and what is kept of them."""

    concurrency: v.Count = key(1, "Tasks that run at once, per capsule.")
    on_restart: Literal["fail", "rerun"] = key(
        "fail", "What becomes of the tasks that a command ran when the sidecar ended."
    )
    keep_events: v.Count = key(100_000, "Events kept for replay, per session.")
    keep_tasks: v.Days = duration("30d", "Ended tasks are kept for so long.")
    forget: v.Hours = duration(
        "24h", "Session, id, port and tasks of a capsule that is gone are kept for so long."
    )


class Log(Block):
    """What is logged, and how."""

    level: Literal["debug", "info", "warning", "error"] = key(
        "info", "The least important lines that are logged."
    )
    format: Literal["auto", "console", "json"] = key(
        "auto", "For people or for machines; auto: console on a terminal, JSON elsewhere."
    )


class Traces(Block):
    """Spans for a collector of OpenTelemetry."""

    endpoint: b.Url | None = key(
        None, "Where spans go, by OTLP over HTTP, such as http://localhost:4318/v1/traces; null: nowhere."
    )
    percent: v.Percent = key(100, "So many traces in a hundred are recorded, of those that begin here.")


class Limits(Block):
    """What a file or a client may cost. The last three are per capsule."""

    manifest: v.FileSize = size("128KiB", "Largest manifest.")
    body: v.BodySize = size("1MiB", "Largest request body.")
    idle: v.SomeSeconds = duration("75s", "A connection without a request is closed after so long.")
    body_timeout: v.SomeSeconds = duration("15s", "A request body must arrive within this time.")
    drain: v.Seconds = duration("8s", "Stopping takes at most so long.")
    stop_grace: v.Seconds = duration("3s", "Of that, a command has so long to end by itself.")
    blocking_send: v.SomeSeconds = duration(
        "300s", "An A2A send that waits for its task is answered after so long with the task as it stands."
    )
    rate: v.SomeRate | None = key(
        None, "Requests of one caller to one capsule, such as 10/s or 600/m; null: any number."
    )
    connections: v.Count = key(2048, "Connections, per capsule.")
    streams: v.Count = key(2048, "Open streams, per capsule.")
    tasks: v.Count = key(1000, "Live tasks, waiting for input included, per capsule.")


class Heartbeat(Block):
    """How often an idle stream shows that it is alive."""

    murmur: v.SomeSeconds = duration("15s", "On the murmur door's streams.")
    a2a: v.SomeMilliseconds = duration("2500ms", "On the A2A door's streams, and on sends that wait.")
