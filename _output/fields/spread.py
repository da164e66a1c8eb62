"""Fields of `spread`."""

from typing import Literal, TypedDict

from _output.fields.common import Lead, OkAnswer
from _output.fields.rows import DeviceName
from _output.fields.units import Count, Fraction, Kind, Percent, Picoseconds


class SlowHost(TypedDict):
    """A host whose fastest device is slower than those of all other hosts."""

    host: str
    """Name of the host."""
    n_slowest: Count
    """Steps in which its fastest device was slower than those of all others."""
    p_value: Fraction
    """Chance of that for one of equal hosts."""


class Verdict(TypedDict):
    """Which device is slow, and why."""

    imbalance: Literal["balanced", "slight", "large"] | None
    """The most that perfect balance could save: `balanced` below 1 % of the step, `slight` below
    5 %, otherwise `large`."""
    gain_ps: Picoseconds | None
    """What a step gains if the slowest device becomes like the rest: the largest mean load less the
    largest mean load of the other devices. Null without a verdict."""
    gain_pct_of_step: Percent | None
    """`gain_ps` in percent of the mean step; null without a verdict, or if steps have no length."""
    host_gain_ps: Picoseconds | None
    """The same for a slow host, the one of a straggler with scope `host` or `slow_host`: its
    largest mean load less the largest of the other hosts. Null without one."""
    straggler: DeviceName | None
    """The device that is the slowest in more steps than chance explains, and costs at least 0.5 %
    of the step: its mean load less the largest of the other devices, or `host_gain_ps` with scope
    `host`. Equally slow devices share the steps, so there may be none: see `slow_host`."""
    n_slowest: Count | None
    """Steps in which the straggler, or the device that is most often the slowest, was the
    slowest."""
    n_steps: Count
    """Number of steps."""
    p_value: Fraction | None
    """Chance of `n_slowest` for one of equal devices."""
    scope: Literal["host", "device"] | None
    """`host` if all devices of its host are above the median of the others', otherwise `device`;
    null with one host, or one device on it."""
    cause: Literal["own", "idle", "host"] | None
    """`own`, `idle` or `host`, if that is 80 % of the excess."""
    uniform_pct: Percent | None
    """Share of the excess that is one factor on all lines: close to 100 for a slow clock or a
    faulty chip, low if some lines are slow, such as unbalanced experts."""
    slow_host: SlowHost | None
    """Without a straggler: the host whose fastest device is slower than those of all other hosts,
    in more steps than chance explains, if `host_gain_ps` is at least 0.5 % of the step. Only if all
    hosts have the same number of devices, two or more."""
    why_not: Literal["one_device", "no_common_step"] | None
    """Why there is no verdict."""


class SpreadStep(TypedDict):
    """A step that all devices have used."""

    name: str | None
    """Name of the step."""
    slowest: DeviceName
    """The device with the largest load."""
    max_load_ps: Picoseconds
    """Its load."""
    mean_load_ps: Picoseconds
    """Mean load of all devices."""
    gain_ps: Picoseconds | None
    """What the step gains if this device becomes like the rest: its load less the largest of the
    other devices. Null if it is the only one."""
    imbalance_ps: Picoseconds
    """The most that perfect balance could save."""
    imbalance_pct_of_step: Percent | None
    """`imbalance_ps` in percent of the mean step."""
    step_spread_pct: Percent | None
    """Longest minus shortest duration of the step, in percent of the median."""


class Means(TypedDict):
    step_duration_ps: Picoseconds | None
    """Mean duration of a step; null without a step, like the next five."""
    own_ps: Picoseconds | None
    """Mean load without transfers of the host and idle time."""
    comm_ps: Picoseconds | None
    """Mean time of communication."""
    host_ps: Picoseconds | None
    """Mean time of transfers to and from the host."""
    idle_ps: Picoseconds | None
    """Mean idle time."""
    load_ps: Picoseconds | None
    """Mean load: the step without communication."""


class Host(Means):
    """A host; means are over steps and devices."""

    host: str
    """Name of the host."""
    n_devices: Count
    """Its devices."""
    n_steps: Count
    """Steps, as in the cohort."""
    n_slowest: Count
    """Steps in which one of its devices was the slowest."""


class Device(DeviceName, Means):
    """A device; means are over steps."""

    n_steps: Count
    """Steps, as in the cohort."""
    n_slowest: Count
    """Steps in which it was the slowest."""


class DevicesTail(TypedDict):
    """The devices that the list leaves out."""

    n_devices_omitted: Count
    """Devices beyond `--top`."""
    n_slowest: Count
    """Steps in which one of them was the slowest."""


class LineDelta(TypedDict):
    """A source line of two devices."""

    kind: Kind
    """Kind of its ops."""
    agg_key: str
    """Key of the group."""
    source_inner: str | None
    """Source line."""
    median_ps: Picoseconds
    """Mean time on the median device."""
    slow_ps: Picoseconds
    """Mean time on the slow device."""
    delta_ps: Picoseconds
    """Difference."""
    delta_pct: Percent | None
    """Difference in percent of the median device's time."""


class SlowestVsMedian(TypedDict):
    """The slow device against the median device, line by line."""

    slow: DeviceName
    """The slow device."""
    median: DeviceName
    """The median device."""
    excess_ps: Picoseconds
    """Difference of the loads."""
    factor: Fraction | None
    """Ratio of the sums over their lines."""
    rows: list[LineDelta]
    """Lines of all kinds but comm, the largest difference first, at most 20."""
    rest_ps: Picoseconds
    """The excess that is not in these rows."""


class Cohort(TypedDict):
    """Devices that ran the same program."""

    program: str
    """Hash of the program, as in [record](#record)."""
    n_devices: Count
    """Number of devices."""
    n_hosts: Count
    """Number of their hosts."""
    n_steps: Count
    """Steps that all of them have used. The k-th steps of one name belong together; executions of
    programs are joined by index."""
    verdict: Verdict
    """Which device is slow, and why."""
    steps: list[SpreadStep]
    """Steps by time."""
    hosts: list[Host]
    """Hosts by mean load, largest first."""
    devices: list[Device]
    """Devices by mean load, largest first, at most `--top`."""
    tail: DevicesTail
    """Counts for the omitted devices."""
    slowest_vs_median: SlowestVsMedian | None
    """The straggler, otherwise the device with the largest load, against the median device; null
    with one device or no step."""


class Fields(TypedDict):
    n_hosts: Count
    """Hosts that were read."""
    n_hosts_unreadable: Count
    """Files that could not be read."""
    n_devices: Count
    """Devices that were read."""
    cohorts: list[Cohort]
    """Devices by program, most devices first."""


class Returned(OkAnswer, Fields):
    pass


class Answer(Lead, Returned):
    pass
