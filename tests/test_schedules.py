"""Schedules of pipeline-parallel training, held against torch's own lists, recorded tables, closed forms and a plain second scheduler."""

import csv
import json
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lifecycle_sim as ls
from lifecycle_sim.errors import InputError
from lifecycle_sim.events import Basis
from lifecycle_sim.events.check import check
from lifecycle_sim.study.pipeline.schedule import Schedule, Work
from lifecycle_sim.study.pipeline.schedule_costs import Costs, Layer, Model, joined, recomputed
from lifecycle_sim.study.pipeline.schedule_lists import checked, parse_lists, read_lists, write_lists
from lifecycle_sim.study.pipeline.schedule_orders import SCHEDULES, schedule
from lifecycle_sim.study.pipeline.schedule_result import in_flight, peaks, run_schedule
from lifecycle_sim.study.pipeline.schedule_run import timed
from lifecycle_sim.study.pipeline.schedule_study import compare_schedules, largest_microbatch, points, possible
from lifecycle_sim.study.pipeline.schedule_trace import schedule_trace

TORCH = {
    "GPipe": "gpipe",
    "1F1B": "1f1b",
    "LoopedBFS": "looped-bfs",
    "Interleaved1F1B": "interleaved-1f1b",
    "InterleavedZeroBubble": "interleaved-zb",
    "ZBVZeroBubble": "zbv",
    "DualPipeV": "dualpipev",
}


def plain(made):
    return [[(action.stage, action.work.value, action.microbatch) for action in actions] for actions in made.lists]


NAMED = [(name, chunks) for name, known in SCHEDULES.items() for chunks in ([known.chunks] if known.chunks else [2, 3])]
"""Every schedule, with numbers of chunks that it can have."""


# --- the orders ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theirs", TORCH)
def test_lists_are_those_of_torch(theirs):
    """torch numbers the forwards of 1F1B's last rank from 1: its lists deadlock as they are, and are taken one lower here."""
    visualizer = pytest.importorskip("torch.distributed.pipelining._schedule_visualizer")
    compared = 0
    for ranks in (2, 3, 4, 8):
        for microbatches in (1, 2, 3, 5, 6, 7, 8, 12, 17, 24):
            for chunks in [SCHEDULES[TORCH[theirs]].chunks] if SCHEDULES[TORCH[theirs]].chunks else [2, 3]:
                try:
                    lists = visualizer.get_schedule_ops(theirs, ranks, microbatches, chunks)
                except ValueError:
                    lists = None
                if lists is None:
                    if theirs != "1F1B":  # which is told here for few micro-batches too
                        with pytest.raises(InputError):
                            schedule(theirs, ranks, microbatches, chunks)
                    continue
                made = schedule(theirs, ranks, microbatches, chunks)
                parts = [[part for each in actions if each is not None for part in each.sub_actions or (each,)] for actions in lists]
                expected = [[(p.stage_index, p.computation_type.value, p.microbatch_index) for p in actions] for actions in parts]
                expected = [[part for part in actions if part[1] in "FBIW"] for actions in expected]
                if theirs in ("GPipe", "1F1B"):  # a mock stage has no number of its own
                    expected = [[(rank, work, mb) for _, work, mb in actions] for rank, actions in enumerate(expected)]
                if theirs == "1F1B":
                    assert min(mb for _, work, mb in expected[-1] if work == "F") == 1
                    expected[-1] = [(stage, work, mb - (work == "F")) for stage, work, mb in expected[-1]]
                assert plain(made) == expected
                assert "".join(str(action) for actions in lists for action in actions if action and action.sub_actions) == "".join(
                    place for line in write_lists(made).splitlines() for place in line.split(",") if "OVERLAP" in place
                )
                compared += 1
    assert compared >= 15


@pytest.mark.parametrize(("name", "chunks"), NAMED)
@pytest.mark.parametrize(("ranks", "microbatches"), [(1, 1), (1, 4), (2, 4), (3, 6), (4, 12), (5, 20), (8, 16), (4, 1), (8, 3)])
def test_each_schedule_is_whole_and_ends(name, chunks, ranks, microbatches):
    try:
        made = schedule(name, ranks, microbatches, chunks)
    except InputError as error:
        assert "micro-batches" in str(error)  # noqa: PT017
        return
    assert checked(made.lists, name) == Schedule(name, microbatches, made.lists)
    assert made.stages == ranks * chunks
    assert parse_lists(write_lists(made), name) == made
    assert run_schedule(made).work == ranks * chunks * microbatches * 3


def test_pairs_of_dualpipev_are_each_a_forward_and_a_backward_and_the_last_ranks_first_are_none():
    made = schedule("dualpipev", 4, 8)
    for actions, pairs in zip(made.lists, made.pairs, strict=True):
        assert all((actions[place].work, actions[place + 1].work) == ("F", "B") for place in pairs)
    together = [
        place for place in range(len(made.lists[3]) - 1) if (made.lists[3][place].work, made.lists[3][place + 1].work) == ("F", "B")
    ]
    assert sorted(made.pairs[3]) == together[1:]


def test_the_v_holds_the_first_and_the_last_stage_on_one_rank():
    for name in ("zbv", "dualpipev"):
        assert [schedule(name, 4, 8).stages_of(rank) for rank in range(4)] == [(0, 7), (1, 6), (2, 5), (3, 4)]
    assert [schedule("interleaved-1f1b", 4, 8).stages_of(rank) for rank in range(4)] == [(0, 4), (1, 5), (2, 6), (3, 7)]


# --- what is in flight ---------------------------------------------------------------------------------------------------------------


def closed_form(name, p, m, v, r):
    """Peaks in flight of rank r, freed at the weights' and at the input's gradient; pipeline_schedule_closed_forms.csv."""
    each = m // max(1, m // p)
    weights, inputs = {
        "gpipe": (m, m),
        "1f1b": (min(m, p - r),) * 2,
        "looped-bfs": (m * v,) * 2,
        "interleaved-1f1b": (min(m * v, (v - 1) * each + 2 * (p - 1 - r) + 1),) * 2,
        "interleaved-zb": (min(m * v, (v - 1) * each + p), min(m * v, (v - 1) * each + p - r)),
        "zbv": (min(2 * m, 2 * p, m + 1 + r),) * 2,
        "dualpipev": (2 * p + 1,) * 2,
        "zb-h1": (min(m, p), min(m, p - r)),
        "zb-h2": (min(m, 2 * p - 1), min(m, 2 * (p - r) - 1)),
    }[name]
    return weights, inputs


@pytest.mark.parametrize(("name", "chunks"), NAMED)
def test_what_is_in_flight_is_the_closed_form(name, chunks):
    seen = 0
    for p in (1, 2, 3, 4, 8):
        for m in (1, 2, 4, 7, 8, 12, 16, 24):
            try:
                run = run_schedule(schedule(name, p, m, chunks))
            except InputError:
                continue
            if p == 1 and name == "dualpipev":
                continue  # one rank has no steady part
            for rank in run.ranks:
                assert (rank.in_flight, rank.in_flight_input) == closed_form(name, p, m, chunks, rank.rank), (p, m, rank.rank)
            seen += 1
    assert seen > 5


def test_peaks_are_those_of_every_recorded_row(shared):
    with (shared / "data" / "reference" / "pp_schedule_peaks_torch213.csv").open() as file:
        rows = list(csv.DictReader(file))
    keys = ("schedule", "pp", "microbatches", "stages_per_rank")
    compared = 0
    for key, group in groupby(rows, key=lambda row: tuple(row[each] for each in keys)):
        made = schedule(key[0], *map(int, key[1:]))
        for row in group:
            rank = int(row["rank"])
            highest = [max(level.during for level in in_flight(made, rank, until)) for until in (Work.WEIGHT_GRADIENT, Work.INPUT_GRADIENT)]
            assert highest == [int(row[f"peak_inflight_retire_at_{until}"]) for until in "WI"], row
            assert tuple(highest) == closed_form(TORCH[key[0]], *map(int, key[1:]), rank), row
            compared += 1
    assert compared == 3727


def test_times_are_those_of_every_recorded_row(shared):
    rows = json.loads((shared / "data" / "reference" / "pp_schedule_timed.json").read_text())["rows"]
    for row in rows:
        run = run_schedule(schedule(row["schedule"], row["pp"], row["m"], row["v"]))
        found = (run.makespan, [rank.in_flight for rank in run.ranks], [rank.area for rank in run.ranks])
        assert found == (row["makespan"], row["peak"], row["area"]), row["key"]
        assert all(rank.busy == row["busy"] for rank in run.ranks)
        assert float(run.bubble) == pytest.approx(row["bubble_frac"])
    assert len(rows) == 517


# --- times ---------------------------------------------------------------------------------------------------------------------------

TIMES = [(1, 1, 1), (2, 2, 2), (2, 3, 2), (3, 4, 2), (3, 3, 1), (5, 7, 2)]


@pytest.mark.parametrize("p", [2, 3, 4, 8])
@pytest.mark.parametrize(("f", "b", "w"), TIMES)
def test_bubbles_are_the_published_ones(p, f, b, w):
    m, stages = 4 * p, (Layer(f, b, w),) * p
    for name, bubble in (("gpipe", f + b + w), ("1f1b", f + b + w), ("zb-h1", f + b - w)):
        assert run_schedule(schedule(name, p, m), Costs(stages)).makespan == m * (f + b + w) + (p - 1) * bubble, name
    assert run_schedule(schedule("zb-h2", p, m), Costs(stages)).gaps == (p - 1) * (f + b - 2 * w)


@pytest.mark.parametrize("p", [2, 3, 4, 8, 16])
def test_bytes_of_zb_h1_and_zb_h2_are_those_of_the_paper(p):
    """arXiv:2401.10241, table 2: M_B between forward and the input's gradient, M_W of it until the weights'; workers count from 1."""
    m_b, m_w = 1000, 300
    model = Model((Layer(activation=m_b - m_w, weight_input=m_w),) * p, basis=Basis.PAYLOAD)
    found = {name: [rank.peak for rank in run_schedule(schedule(name, p, 3 * p), model).ranks] for name in ("1f1b", "zb-h1", "zb-h2")}
    assert found["1f1b"] == [i * m_b for i in range(p, 0, -1)]
    assert found["zb-h1"] == [(p - i + 1) * m_b + (i - 1) * m_w for i in range(1, p + 1)]
    assert found["zb-h2"] == [(2 * p - 2 * i + 1) * m_b + (2 * i - 2) * m_w for i in range(1, p + 1)]


@pytest.mark.parametrize(("p", "v"), [(2, 2), (4, 2), (4, 3), (8, 4)])
def test_interleaving_holds_as_much_more_as_megatron_says(p, v):
    """1 + (p - 1)/(p·v) times the layers of a rank for p micro-batches (Megatron-LM, theoretical_memory_usage.py)."""
    model = Model((Layer(activation=60),) * (p * v), basis=Basis.PAYLOAD)
    run = run_schedule(schedule("interleaved-1f1b", p, 4 * p, v), model)
    assert run.peak * p * v == p * v * 60 * (p * v + p - 1)


def plain_times(made, costs):
    """A second scheduler: rounds over the ranks, each goes on as far as it can; None if none can and not all is done."""
    done, at, places = {}, [0] * made.ranks, [0] * made.ranks
    ends = [[] for _ in range(made.ranks)]
    holder = {stage: rank for rank in range(made.ranks) for stage in made.stages_of(rank)}
    going = True
    while going:
        going = False
        for rank, actions in enumerate(made.lists):
            while places[rank] < len(actions):
                place = places[rank]
                together = 2 if made.pairs and place in made.pairs[rank] else 1
                group = actions[place : place + together]
                wants = []
                for stage, work, mb in group:
                    if work == "F":
                        wants += [("F", stage - 1, mb)] if stage else []
                    elif work == "W":
                        wants += [("I", stage, mb)]
                    else:
                        wants += [("F", stage, mb)] + ([("I", stage + 1, mb)] if stage < made.stages - 1 else [])
                own = {("F", stage, mb) for stage, work, mb in group if work == "F"}
                wants = [want for want in wants if want not in own]
                if any(want not in done for want in wants):
                    break
                arrivals = [done[want] + (costs.communication if holder[want[1]] != rank else 0) for want in wants]
                at[rank] = max([at[rank], *arrivals])
                for stage, work, mb in group:
                    layer = costs.stages[stage]
                    times = {"F": layer.forward, "I": layer.input_gradient, "W": layer.weight_gradient}
                    at[rank] += times["I"] + times["W"] if work == "B" else times[work.value]
                    ends[rank].append(at[rank])
                    done["I" if work == "B" else work.value, stage, mb] = at[rank]
                places[rank] += together
                going = True
    return None if any(place < len(actions) for place, actions in zip(places, made.lists, strict=True)) else ends


layers = st.builds(Layer, forward=st.integers(0, 9), input_gradient=st.integers(0, 9), weight_gradient=st.integers(0, 9))


@given(st.data(), st.sampled_from(NAMED), st.integers(1, 5), st.integers(1, 12), st.integers(0, 5))
def test_both_schedulers_agree(data, named, p, m, communication):
    name, chunks = named
    try:
        made = schedule(name, p, m, chunks)
    except InputError:
        return
    costs = Costs(tuple(data.draw(st.lists(layers, min_size=p * chunks, max_size=p * chunks))), communication=communication)
    assert [list(ends) for ends in timed(made, costs).ends] == plain_times(made, costs)


@given(st.data(), st.integers(1, 3), st.integers(1, 3))
def test_lists_in_any_order_end_as_in_the_plain_scheduler_or_are_told_as_a_circle(data, p, m):
    lists = []
    for rank in range(p):
        split = data.draw(st.booleans())
        actions = [(rank, work, mb) for mb in range(m) for work in ("FIW" if split else "FB")]
        lists.append(data.draw(st.permutations(actions)))
    made = checked(lists)
    expected = plain_times(made, Costs((Layer(),) * p))
    if expected is not None:
        assert [list(ends) for ends in timed(made, Costs((Layer(),) * p)).ends] == expected
        return
    with pytest.raises(InputError, match="wait in a circle: rank ") as told:
        timed(made, Costs((Layer(),) * p))
    reasons = str(told.value).split("circle: ")[1].split("; ")
    waiters = [reason.split()[1] for reason in reasons]
    waited = [reason.rsplit("of rank ", 1)[1].split(",")[0] if "of rank" in reason else reason.split()[1] for reason in reasons]
    assert waited == waiters[1:] + waiters[:1]


def test_a_deadlock_names_its_circle():
    with pytest.raises(InputError) as told:
        run_schedule(parse_lists("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1"))
    assert str(told.value) == (
        "lists never ends, because its ranks wait in a circle: rank 0 waits at 0B0 for 1B0 of rank 1, behind 1F1; "
        "rank 1 waits at 1F1 for 0F1 of rank 0, behind 0B0"
    )
    with pytest.raises(InputError, match=r"rank 0 waits at 0B0 for 0F0, which its own list has later$"):
        run_schedule(parse_lists("0B0,0F0"))


def test_the_lists_that_torch_gives_for_1f1b_are_refused_as_they_are():
    """Its last rank numbers the forwards from 1."""
    with pytest.raises(InputError) as told:
        parse_lists("0F0,0F1,0B0,0B1\n1F1,1B0,1F2,1B1")
    assert {"lists: 1F0 is missing", "lists: 0F2 is missing"} <= set(told.value.problems)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "lists: holds no action: write a line for each rank, with actions such as 0F0,0B0"),
        ("\n\n", "lists: holds no action: write a line for each rank, with actions such as 0F0,0B0"),
        ("0F0,hello", "lists: rank 0: 'hello' is no action: write stage, F, B, I or W, and micro-batch, such as 0F3"),
        ("0F0,0B0,0F0", "lists: 0F0 is there twice"),
        ("0F0", "lists: 0B0 is missing"),
        ("0F0,0I0", "lists: 0W0 is missing"),
        ("0F0,0W0,0B0", "lists: 0B0 is there beside I or W of the same: a backward is whole, or in two parts"),
        ("0F0\n0B0", "lists: stage 0 is on rank 0 and on rank 1: 0B0 belongs to one of them"),
        ("0F0,0B0\n\n1F0,1B0", "lists: rank 1 has nothing to do: leave its line out"),
        ("0F0,9B999999999", "lists: stages go up to 9 and micro-batches to 999,999,999, with 2 actions: count from 0"),
        (
            "(0B0;0F0)OVERLAP_F_B",
            "lists: rank 0: '(0B0;0F0)OVERLAP_F_B' is no pair: write a forward and a backward, such as (0F4;7B2)OVERLAP_F_B",
        ),
    ],
)
def test_lists_that_are_not_whole_are_refused(text, problem):
    with pytest.raises(InputError) as told:
        parse_lists(text)
    assert problem in told.value.problems


def test_sends_receives_and_gaps_are_passed_over(tmp_path):
    (tmp_path / "mine.csv").write_text("0UNSHARD,0F0,0SEND_F0,,1RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n,0RECV_F0,1F0,1B0,1SEND_B0\n")
    made = read_lists(tmp_path / "mine.csv")
    assert (made.name, plain(made)) == ("mine", [[(0, "F", 0), (0, "B", 0)], [(1, "F", 0), (1, "B", 0)]])
    for absent in (tmp_path / "absent.csv", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            read_lists(absent)
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        read_lists(tmp_path / "binary.csv")


@pytest.mark.parametrize(
    ("name", "numbers", "problem"),
    [
        ("1f2b", (4, 8), "schedule '1f2b' is not known: did you mean '1f1b'?"),
        ("gpipe", (0, 8), "gpipe: the number of stages is 0: give 1 or more"),
        ("gpipe", (4, -1), "gpipe: the number of micro-batches is -1: give 1 or more"),
        ("gpipe", (4, 8, 2), "gpipe: it has 1 stage a rank, not 2: leave the number of chunks out"),
        ("zbv", (4, 8, 3), "zbv: it has 2 stages a rank, not 3: leave the number of chunks out"),
        ("interleaved-1f1b", (4, 8, 1), "interleaved-1f1b: it has 2 chunks a rank or more, not 1: with 1 it is 1f1b"),
        ("interleaved-1f1b", (4, 9), "interleaved-1f1b: 9 micro-batches do not make 2 equal rounds over 4 ranks: take 8 or 12"),
        ("dualpipev", (4, 7), "dualpipev: it needs 2 micro-batches for each of 4 ranks, 8 in all, not 7"),
        ("gpipe", (10**6, 10**6), "gpipe: up to 3,000,000,000,000 actions are more than 4,000,000"),
    ],
)
def test_numbers_that_make_no_schedule_are_refused(name, numbers, problem):
    with pytest.raises(InputError) as told:
        schedule(name, *numbers)
    assert str(told.value).startswith(problem)


@pytest.mark.parametrize(("p", "m"), [(4, 9), (3, 7), (4, 11), (8, 17)])
def test_the_numbers_that_a_refusal_names_are_possible(p, m):
    with pytest.raises(InputError) as told:
        schedule("interleaved-1f1b", p, m)
    lower, higher = (int(number) for number in str(told.value).rsplit("take ", 1)[1].split(" or "))
    assert lower < m < higher
    for taken in (lower, higher):
        assert schedule("interleaved-1f1b", p, taken).microbatches == taken


# --- bytes ---------------------------------------------------------------------------------------------------------------------------

sizes = st.integers(0, 100)
sized = st.builds(
    Layer,
    activation=sizes,
    weight_input=sizes,
    output_gradient=sizes,
    input=sizes,
    forward_temporary=sizes,
    backward_temporary=sizes,
    weight_temporary=sizes,
    static=sizes,
)


@given(st.data(), st.sampled_from(NAMED), st.integers(1, 4), st.integers(1, 8), st.booleans())
def test_the_trace_of_each_rank_has_its_peak(data, named, p, m, recomputes):
    name, chunks = named
    try:
        made = schedule(name, p, m, chunks)
    except InputError:
        return
    model = Model(tuple(data.draw(st.lists(sized, min_size=2 * p * chunks, max_size=2 * p * chunks))), resident=5, basis=Basis.PAYLOAD)
    run = run_schedule(made, Model(model.layers, resident=5, basis=Basis.PAYLOAD, recomputes=recomputes).costs(p * chunks))
    trace = schedule_trace(run, capacity=10**6)
    assert check(trace) == ()
    for rank, replayed in zip(run.ranks, ls.replay_all(trace), strict=True):
        assert replayed.peak.size == rank.peak
        assert replayed.timeline.end == rank.static
        if rank.peak_place >= 0:
            assert replayed.peak.time == rank.peak_time
    assert [rank.peak for rank in run.ranks] == peaks(made, run.costs)
    assert run.binding.peak == max(rank.peak for rank in run.ranks)


@given(st.lists(sized, min_size=1, max_size=5))
def test_layers_joined_peak_where_their_parts_do(parts):
    """Layer by layer, all that a forward leaves comes as it runs, and goes as the backward runs; a stage has it from start to end."""
    whole, level, highest = joined(parts), 0, 0
    for part in parts:
        level += part.held
        highest = max(highest, level + part.forward_temporary)
    assert max(highest, level) == whole.held + whole.forward_temporary
    highest = level
    for part in reversed(parts):
        highest = max(highest, level + part.backward_temporary)
        level -= part.held
    assert highest == whole.held + whole.backward_temporary
    level = highest = whole.held + whole.output_gradient
    level = whole.held
    for part in reversed(parts):
        level += part.output_gradient
        highest = max(highest, level + part.apart)
        level -= part.activation
    assert highest == whole.held + whole.output_gradient + whole.apart


def test_recomputation_keeps_inputs_and_runs_forwards_twice():
    layer = Layer(forward=3, input_gradient=4, weight_gradient=2, activation=80, weight_input=20, input=10, static=7)
    again = recomputed(layer)
    assert (again.forward, again.input_gradient, again.weight_gradient) == (3, 7, 2)
    made = schedule("gpipe", 2, 4)
    kept = run_schedule(made, Model((layer,) * 8, basis=Basis.PAYLOAD).costs(2))
    less = run_schedule(made, Model((layer,) * 8, basis=Basis.PAYLOAD, recomputes=True).costs(2))
    assert kept.ranks[0].peak == 4 * 7 + 4 * (4 * 100 + 10)  # four layers a stage, four micro-batches, a copy of the stage's input
    assert less.ranks[0].peak == 4 * 7 + 4 * 4 * 10 + 100  # inputs of four layers and micro-batches, and one layer whole
    assert less.work == kept.work + 2 * 4 * 4 * 3


def test_schedules_differ_in_bytes_alone_where_the_work_is_the_same():
    """The twin of the line: the same makespan and the same work, and what each rank holds at most is 16 or 4, 3, 2, 1 micro-batches."""
    runs = [
        run_schedule(schedule(name, 4, 16), Costs((Layer(1, 1, 1, activation=1 << 30),) * 4, basis=Basis.PAYLOAD))
        for name in ("gpipe", "1f1b")
    ]
    assert [run.makespan for run in runs] == [57, 57]
    assert [run.work for run in runs] == [192, 192]
    assert [[rank.peak >> 30 for rank in run.ranks] for run in runs] == [[16] * 4, [4, 3, 2, 1]]


def test_the_rank_that_binds_need_not_be_the_first():
    stages = tuple(Layer(activation=10, static=static) for static in (0, 0, 0, 100))
    run = run_schedule(schedule("1f1b", 4, 8), Costs(stages, basis=Basis.PAYLOAD))
    assert ([rank.peak for rank in run.ranks], run.binding.rank) == ([40, 30, 20, 110], 3)


def test_bytes_beyond_64_bits_are_exact():
    run = run_schedule(schedule("gpipe", 2, 8), Costs((Layer(activation=2**62 + 1),) * 2, basis=Basis.PAYLOAD))
    assert run.peak == 8 * 2**62 + 8
    with pytest.raises(InputError, match=r"a rank holds 36,893,488,147,419,103,240 B, and a trace counts to 2\*\*63 - 1"):
        schedule_trace(run)


def test_a_schedule_without_bytes_has_no_trace():
    run = run_schedule(schedule("gpipe", 2, 2))
    assert run.peak is None
    with pytest.raises(InputError, match="no bytes are known, so there is nothing to trace"):
        schedule_trace(run)


@pytest.mark.parametrize("value", [-1, 1.5, True, "3"])
def test_a_layer_takes_whole_numbers_from_0_on(value):
    with pytest.raises(InputError, match=r"activation is .*: give a whole number, 0 or more"):
        Layer(activation=value)


def test_costs_must_be_of_each_stage():
    with pytest.raises(InputError, match="1f1b has 2 stages, and costs are known of 3"):
        run_schedule(schedule("1f1b", 2, 2), Costs((Layer(),) * 3))
    with pytest.raises(InputError, match="has 3 layers, which do not make 4 stages: take at most 3 stages"):
        Model((Layer(),) * 3).costs(4)
    with pytest.raises(InputError, match="use a coarser clock"):
        run_schedule(schedule("1f1b", 1, 2), Costs((Layer(forward=2**62),)))


# --- questions -----------------------------------------------------------------------------------------------------------------------


def test_comparing_lets_every_schedule_do_the_same_work():
    rows = compare_schedules(Model(), points(possible(4, 16), [4], [16]))
    assert {row.work for row in rows} == {4 * 16 * 2 * 3}
    assert {row.point.name: row.makespan for row in rows}["1f1b"] == 2 * 57


@pytest.mark.parametrize("workers", [1, 2])
def test_an_executor_changes_no_answer(workers):
    from concurrent.futures import ThreadPoolExecutor

    chosen = points(SCHEDULES, [2, 3], [3, 6], [2, 3])
    model = Model((Layer(activation=3),) * 24, basis=Basis.PAYLOAD, capacity=100)
    here = compare_schedules(model, chosen)
    with ThreadPoolExecutor(workers) as executor:
        assert compare_schedules(model, chosen, executor=executor) == here
    refused = [row for row in here if row.why_not]
    assert refused
    assert all(row.peak is None and row.fits is None for row in refused)
    assert {row.fits for row in here} == {True, False, None}


@given(st.integers(1, 50), st.integers(0, 1000), st.integers(0, 2), st.integers(1, 200_000), st.sampled_from([1, 2, 3, 100, 5000]))
def test_the_largest_micro_batch_is_proved_at_both_sides(slope, throughout, bend, capacity, limit):
    made = schedule("1f1b", 2, 4)

    def costs(size):
        return Costs((Layer(activation=slope * size + bend * (size * size // 7), static=throughout),) * 2, basis=Basis.PAYLOAD)

    found = largest_microbatch(made, costs, capacity, limit)
    if found.size > 0:
        assert max(peaks(made, costs(found.size))) == found.at.peak <= capacity
        assert found.size == limit if found.above is None else max(peaks(made, costs(found.size + 1))) == found.above.peak > capacity
    else:
        assert max(peaks(made, costs(1))) > capacity
        assert (found.size == -1) == (throughout > capacity)
    assert len({probe.size for probe in found.probes}) == len(found.probes) <= 30


def test_a_straight_line_takes_few_probes():
    found = largest_microbatch(
        schedule("1f1b", 4, 8), lambda size: Costs((Layer(activation=size << 20, static=1 << 30),) * 4, basis=Basis.PAYLOAD), 80 << 30
    )
    assert (found.size, len(found.probes)) == ((79 << 10) // 4, 5)


def test_a_peak_that_falls_is_refused():
    with pytest.raises(InputError, match=r"the peak falls as micro-batches grow \(10 B with 1, 5 B with 2\)"):
        largest_microbatch(schedule("1f1b", 1, 1), lambda size: Costs((Layer(activation=10 // size),), basis=Basis.PAYLOAD), 100, 8)


def test_bytes_that_do_not_depend_on_the_micro_batch_are_refused():
    with pytest.raises(InputError, match="a micro-batch of 2 takes as many bytes as one of 1"):
        largest_microbatch(schedule("1f1b", 2, 4), lambda _: Costs((Layer(activation=9),) * 2, basis=Basis.PAYLOAD), 100)


def test_schedules_show_themselves():
    run = run_schedule(schedule("1f1b", 2, 4), Costs((Layer(activation=5),) * 2, basis=Basis.PAYLOAD))
    assert repr(run) == "ScheduleRun('1f1b', makespan 15, peak 10 B on rank 0)"
    assert "10 B payload, simulated, on rank 0" in run._repr_html_()
    assert repr(run.schedule) == "Schedule('1f1b', 2 ranks, 4 micro-batches, 2 stages, 16 actions)"
    assert [str(action) for action in run.schedule.lists[1]][:3] == ["1F0", "1B0", "1F1"]
    assert run.schedule.lists[0][0].work is Work.FORWARD
