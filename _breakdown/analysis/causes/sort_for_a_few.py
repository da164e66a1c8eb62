"""Find sorts of a large dimension of which only a few elements are read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from _breakdown.analysis.arrays.engine import Retime
from _breakdown.analysis.causes.shared.cause import SEEN, Cause
from _breakdown.analysis.causes.shared.resized import sizes_of
from _breakdown.analysis.causes.shared.step_program import StepProgram
from _breakdown.units import time

# Sorts of fewer elements per row take little more than a pass.
_LEAST_ELEMENTS = 1024
# Readers take at most 1 / `_PART` of the elements. A selection of more would need more passes.
_PART = 8
_DIM_RE = re.compile(r"dimensions=\{(\d+)\}")

FOR_SORT = (
    "Use lax.top_k instead of a sort, or count the elements above a threshold; lax.approx_max_k is"
    " faster if some errors are allowed."
)
FOR_TOP_K = "Use lax.approx_max_k instead of lax.top_k, or a smaller number of candidates."


def find(of: StepProgram) -> Iterator[Cause]:
    hbm = of.roofs.hbm
    for here in of.with_opcodes("sort"):
        ran = of.ran_of.get(here)
        if ran is None or not here.arrays:
            continue
        array = here.arrays[0]
        sorted_dim = _DIM_RE.search(ran.op.text)
        n = dict(enumerate(array.dims)).get(int(sorted_dim[1]), 0) if sorted_dim else 0
        if n < _LEAST_ELEMENTS or not hbm:
            continue
        few = round(n * sizes_of(of).left_of(sizes_of(of).part, ran))
        if few * _PART <= n:
            is_top_k = "top_k" in (here.op_name or "")
            read = ran.n * (array.n_bytes or 0) / float(hbm)
            yield Cause(
                f"<line> sorts {array.text}, but the step reads only {max(1, few)}"
                f" of {n} elements in a row. The sort takes {time(ran.total)}; one pass over the"
                " array would save <gain>.",
                FOR_TOP_K if is_top_k else FOR_SORT,
                SEEN,
                [ran],
                [Retime(ran, min(ran.total, read))],
                evidence={"shape": array.text},
            )
