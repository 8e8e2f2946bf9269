"""Sessions.

Why sorting by time and cutting where no link crosses is exact (`session.py`): let i arrive and
touch a session S with greatest event time t[m]. If t[m] < t[i], S is alive iff
t[m] + gap + lateness > watermark[i], which with t[m] >= t[i] - gap is the link (m, i). If
t[m] >= t[i], S ends no earlier than row i alone would, and i is not late, so S is alive; and S has
a row within a gap of i, since neighbours inside a session are never further apart; that pair is
linked, whichever came first, because the later one was not late. Conversely a link puts both into
one session. Linked sets are contiguous in time: a row b between linked j < i lies within a gap of
both; it is linked to i, or else it was dead before i came, and then j, which is older still, is
late or unlinked. So sessions are the stretches between cuts that no link crosses.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from streams.runtime.window import session
from tests.runtime.window_model import CUTS, EMITS, LOGS, Model, log, play, spec


@settings(max_examples=300, deadline=None)
@given(LOGS, CUTS, EMITS, st.integers(1, 9), st.sampled_from([0, 2, 7]), st.sampled_from([0, 1, 5]))
def test_equal_the_row_by_row_model_for_every_cut(raw, cuts, emit, gap, lateness, bound):
    rows, after = log(raw, bound)
    model = Model(gap, 0, 0, lateness, emit)
    for row, following in zip(rows, [*(r.watermark for r in rows[1:]), after], strict=True):
        model.row(row, following)
    _, table, late = play(session(spec(emit, lateness), gap), rows, after, cuts)
    assert (table, late) == (model.table, model.late)
