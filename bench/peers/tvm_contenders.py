"""Apache TVM: a site, or phase 1 and phase 2, as a tensor-expression function each, tuned by
MetaSchedule for a given time and called in a loop over the sites.

MetaSchedule, in tvm.s_tir.meta_schedule by TVM 0.27, is what a user of that version tunes for a CPU
with: dlight's default schedules are for GPUs. It counts trials, not seconds, so a callback after
each batch of trials ends it.
"""

import os
import tempfile
import time

from problem import EPS, Contender

TRIALS_A_ROUND = 16  # of one function, before the scheduler picks the next
POPULATION = 64  # candidates of a round; with the default of 512 two cores take minutes to begin


# ---- tensor expressions: f32 inside, rounded where a function's results say ----------------------
# What MetaSchedule 0.27 likes: few sums over D in one function, for each makes three times as many
# designs (a whole site in one function was not enumerated in two minutes); none whose sum is used
# with another's in the same function (its reverse-compute-at fails); and sums over the few sources
# written out.


class Expressions:
    """Functions of tensors; each method gives the results of one function."""

    def __init__(self):
        from tvm import te, tirx

        self.te, self.tir = te, tirx

    def const(self, number):
        return self.tir.const(float(number), "float32")

    def f32(self, x):
        return x.astype("float32")

    def total(self, shape, term, name):
        """sum over d of term(*indices, d): a tensor of `shape` without its last axis."""
        d = self.te.reduce_axis((0, shape[-1]), name="d")
        return self.te.compute(shape[:-1], lambda *i: self.te.sum(term(*i, d), axis=d), name=name)

    def inverse_rms(self, squares, hidden):
        return self.te.rsqrt(squares / self.const(int(hidden)) + self.const(EPS))

    def sums(self, v, weight):
        """v [..., D], weight [D] -> sum of v^2 and weight . v, both [...]."""
        squares = self.total(v.shape, lambda *i: self.f32(v[i]) * self.f32(v[i]), "squares")
        return squares, self.total(v.shape, lambda *i: self.f32(v[i]) * weight[i[-1]], "dots")

    def normed(self, h, gain, dtype):
        """h [T, D] f32 -> RMSNorm(h) * gain in dtype."""
        squares = self.total(h.shape, lambda t, d: h[t, d] * h[t, d], "h_squares")
        return self.te.compute(
            h.shape,
            lambda t, d: (h[t, d] * self.inverse_rms(squares[t], h.shape[1]) * gain[d]).astype(
                dtype
            ),
            "x",
        )

    def over_sources(self, combine, term, count):
        value = term(0)
        for i in range(1, int(count)):
            value = combine(value, term(i))
        return value

    def bank_sums(self, bank, weight):
        """bank [N, T, D], weight [D] -> what makes logits [N, T]."""
        return self.sums(bank, weight)

    def newest(self, p, x, weight):
        """p and x [T, D], weight [D] -> p + x, and what makes its logits [T]."""
        p = self.te.compute(p.shape, lambda t, d: p[t, d] + x[t, d], "p_new")
        return p, *self.sums(p, weight)

    def mix(self, bank, p, squares, dots, p_squares, p_dots, gain):
        """bank [N, T, D], p [T, D], sums [N, T] of the one and [T] of the other, gain [D] -> x [T,
        D].
        """
        te, (count, tokens, hidden) = self.te, bank.shape
        old = te.compute(
            (count, tokens),
            lambda n, t: dots[n, t] * self.inverse_rms(squares[n, t], hidden),
            "old",
        )
        new = te.compute(
            (tokens,), lambda t: p_dots[t] * self.inverse_rms(p_squares[t], hidden), "new"
        )
        top = te.compute(
            new.shape,
            lambda t: self.tir.max(
                self.over_sources(self.tir.max, lambda n: old[n, t], count), new[t]
            ),
            "top",
        )
        e = te.compute(old.shape, lambda n, t: te.exp(old[n, t] - top[t]), "e")
        e_new = te.compute(new.shape, lambda t: te.exp(new[t] - top[t]), "e_new")
        scale = te.compute(
            new.shape,
            lambda t: self.const(1)
            / (self.over_sources(lambda a, b: a + b, lambda n: e[n, t], count) + e_new[t]),
            "scale",
        )

        k = te.reduce_axis((0, count), "k")
        mixed = te.compute(
            p.shape, lambda t, d: te.sum(e[k, t] * self.f32(bank[k, t, d]), axis=k), "mixed"
        )

        def value(t, d):
            return (mixed[t, d] + e_new[t] * self.f32(p[t, d])) * scale[t]

        return (self.normed(te.compute(p.shape, value, "h"), gain, p.dtype),)

    def all_sums(self, bank, weights):
        """bank [N, T, D], weights [S, D] -> sums of squares [N, T] and products [N, T, S]."""
        squares = self.total(
            bank.shape, lambda n, t, d: self.f32(bank[n, t, d]) * self.f32(bank[n, t, d]), "squares"
        )
        shape = (*bank.shape[:2], *weights.shape)
        return squares, self.total(
            shape, lambda n, t, s, d: self.f32(bank[n, t, d]) * weights[s, d], "dots"
        )

    def bank_mixes(self, bank, squares, dots):
        """bank [N, T, D], its sums -> mixes [S, T, D] and log-sum-exp [S, T]."""
        te, (count, tokens, hidden), sites = self.te, bank.shape, dots.shape[2]
        z = te.compute(
            dots.shape, lambda n, t, s: dots[n, t, s] * self.inverse_rms(squares[n, t], hidden), "z"
        )
        top = te.compute(
            (tokens, sites),
            lambda t, s: self.over_sources(self.tir.max, lambda n: z[n, t, s], count),
            "top",
        )
        e = te.compute(z.shape, lambda n, t, s: te.exp(z[n, t, s] - top[t, s]), "e")
        sums = te.compute(
            (tokens, sites),
            lambda t, s: self.over_sources(lambda a, b: a + b, lambda n: e[n, t, s], count),
            "sums",
        )

        k, shape = te.reduce_axis((0, count), "k"), (sites, tokens, hidden)
        mixed = te.compute(
            shape, lambda s, t, d: te.sum(e[k, t, s] * self.f32(bank[k, t, d]), axis=k), "mixed"
        )
        mixes = te.compute(
            shape, lambda s, t, d: (mixed[s, t, d] / sums[t, s]).astype(bank.dtype), "mixes"
        )
        lse = te.compute((sites, tokens), lambda s, t: top[t, s] + te.log(sums[t, s]), "lse")
        return mixes, lse

    def merge(self, mix, lse, p, squares, dots, gain):
        """mix [T, D], lse [T], p [T, D] and its sums [T], gain [D] -> x [T, D]."""
        share = self.te.compute(
            lse.shape,
            lambda t: self.te.sigmoid(dots[t] * self.inverse_rms(squares[t], p.shape[1]) - lse[t]),
            "share",
        )

        def value(t, d):
            o = self.f32(mix[t, d])
            return o + share[t] * (self.f32(p[t, d]) - o)

        return (self.normed(self.te.compute(p.shape, value, "h"), gain, p.dtype),)

    def function(self, name, shapes):
        """The method of that name as a TIR function of {input: (shape, dtype)}, then results."""
        inputs = [self.te.placeholder(*of, name=tensor) for tensor, of in shapes.items()]
        return self.te.create_prim_func([*inputs, *getattr(self, name)(*inputs)])


# ---- tuning --------------------------------------------------------------------------------------


def deadline(end, functions):
    """A callback that ends the search, by an exception, when time.monotonic() has passed `end` and
    each of so many functions has had a round."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir import meta_schedule as ms

    seen = set()

    @derived_object
    class Deadline(ms.measure_callback.PyMeasureCallback):
        def apply(self, _scheduler, task, *_):
            seen.add(int(task))
            if time.monotonic() > end and len(seen) == functions:
                raise TimeoutError

    return Deadline()


def quick_import():
    """Imports TVM's tensor intrinsics, which every process of MetaSchedule does before its first
    build.

    Each of them has Python search all loaded modules for those on the stack; with PyTorch among the
    modules that takes longer than a build may. It is not needed for anything, so the search finds
    nothing here.
    """

    def load():
        import inspect

        getmodule, inspect.getmodule = inspect.getmodule, lambda *_: None
        try:
            import tvm.s_tir.tensor_intrin  # noqa: F401
        finally:
            inspect.getmodule = getmodule

    return load  # a local function: it is sent to other processes whole, not as a name


def tune(module, target, seconds):
    """A TIR module -> its compiled form after a search of so many seconds, and how many trials
    there were.
    """
    import tvm
    from tvm.s_tir import meta_schedule as ms

    end = time.monotonic() + seconds
    quick_import()()
    with tempfile.TemporaryDirectory() as folder:
        database = ms.database.JSONDatabase(work_dir=folder)
        cores = int(target.attrs["num-cores"])
        evaluator = ms.runner.EvaluatorConfig(number=1, repeat=3, min_repeat_ms=0)
        try:
            ms.tune_tir(
                module,
                target,
                folder,
                max_trials_global=1_000_000,
                num_trials_per_iter=TRIALS_A_ROUND,
                strategy=ms.search_strategy.EvolutionarySearch(
                    population_size=POPULATION, genetic_num_iters=2
                ),
                num_tuning_cores=cores,
                database=database,
                builder=ms.builder.LocalBuilder(
                    timeout_sec=60, max_workers=cores, initializer=quick_import()
                ),
                runner=ms.runner.LocalRunner(
                    timeout_sec=20, evaluator_config=evaluator, initializer=quick_import()
                ),
                measure_callbacks=[
                    ms.measure_callback.AddToDatabase(),
                    ms.measure_callback.UpdateCostModel(),
                    deadline(end, len(module.functions)),
                ],
                seed=1,
            )
        except Exception:  # what the callback raised comes back as another type
            if time.monotonic() < end:
                raise
        tuned = {}
        for name, function in module.functions.items():
            schedule = ms.tir_integration.compile_tir(database, function, target)
            if schedule is None:
                raise RuntimeError(
                    f"no trial of {name.name_hint} succeeded in {seconds:.0f} s; give more"
                )
            tuned[name.name_hint] = schedule.mod["main"].with_attr("global_symbol", name.name_hint)
        return tvm.compile(tvm.IRModule(tuned), target), len(database)


class Tvm(Contender):
    name, form = "TVM MetaSchedule", "one phase"

    def prepare(self, problem):
        os.environ["TVM_NUM_THREADS"] = str(problem.threads)
        import ml_dtypes
        import numpy as np
        import tvm

        self.tvm, self.numpy, self.sites = tvm, np, problem.sites
        element = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}[problem.dtype]
        self.dtype = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}[problem.dtype]
        tensor, weights = tvm.runtime.tensor, problem.query * problem.key_gain
        self.bank = tensor(problem.bank.astype(element))
        self.first = tensor(problem.first.astype(element))
        self.zero = tensor((0 * problem.first).astype(element))
        self.weights = tensor(weights)
        self.weight_of = [tensor(weight) for weight in weights]
        self.gain_of = [tensor(gain) for gain in problem.output_gain]
        t, d, n, s = problem.rows, problem.hidden, problem.bank_rows, problem.sites
        self.p = [self.empty(t, d), self.empty(t, d)]  # a site reads the one and writes the other
        self.x, self.p_sums = self.empty(t, d), [self.empty(t, dtype="float32") for _ in range(2)]

        row, f32 = ((t, d), self.dtype), "float32"
        bank, parameter, numbers = ((n, t, d), self.dtype), ((d,), f32), ((t,), f32)
        sums, p_sums = {"squares": ((n, t), f32)}, {"p_squares": numbers, "p_dots": numbers}
        self.shapes = {
            "bank_sums": {"bank": bank, "weight": parameter},
            "newest": {"p": row, "x": row, "weight": parameter},
            "mix": {
                "bank": bank,
                "p": row,
                **sums,
                "dots": ((n, t), f32),
                **p_sums,
                "gain": parameter,
            },
            "all_sums": {"bank": bank, "weights": ((s, d), f32)},
            "bank_mixes": {"bank": bank, **sums, "dots": ((n, t, s), f32)},
            "merge": {"mix": row, "lse": numbers, "p": row, **p_sums, "gain": parameter},
        }
        self.set_up(t, d, n, s)
        self.build(problem)

    def empty(self, *shape, dtype=None):
        return self.tvm.runtime.empty(shape, dtype or self.dtype)

    functions = ("bank_sums", "newest", "mix")

    def set_up(self, t, d, n, s):
        self.sums = [self.empty(n, t, dtype="float32") for _ in range(2)]

    def build(self, problem):
        expressions = Expressions()
        functions = {name: expressions.function(name, self.shapes[name]) for name in self.functions}
        module = self.tvm.IRModule(
            {
                name: function.with_attr("global_symbol", name)
                for name, function in functions.items()
            }
        )
        cpu = self.tvm.target.Target.from_device("cpu").attrs["mcpu"]
        target = self.tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": problem.threads})
        start = time.monotonic()
        self.library, trials = tune(module, target, problem.tuning_seconds)
        self.call = {name: self.library[name] for name in functions}
        self.note = f"{trials} trials in {time.monotonic() - start:.0f} s"

    def run(self):
        p, x = self.zero, self.first
        for s in range(self.sites):
            self.call["bank_sums"](self.bank, self.weight_of[s], *self.sums)
            self.call["newest"](p, x, self.weight_of[s], self.p[s % 2], *self.p_sums)
            p, x = self.p[s % 2], self.x
            self.call["mix"](self.bank, p, *self.sums, *self.p_sums, self.gain_of[s], x)

    def result(self):
        return self.x.numpy().astype("float32")


class TvmTwoPhases(Tvm):
    form, functions = "two phases", ("all_sums", "bank_mixes", "newest", "merge")

    def set_up(self, t, d, n, s):
        self.sums = [self.empty(n, t, dtype="float32"), self.empty(n, t, s, dtype="float32")]
        self.mixes, self.mix_of = self.stack(s, (t, d), self.dtype)
        self.lse, self.lse_of = self.stack(s, (t,), "float32")

    def stack(self, count, shape, dtype):
        """A tensor [count, *shape] and its slices, by NumPy: functions take no byte offsets."""
        bits = "float32" if dtype == "float32" else "uint16"  # NumPy knows no bfloat16
        memory, tensors = self.empty(count, *shape, dtype=bits), self.tvm.runtime
        slices = [tensors.from_dlpack(part) for part in self.numpy.from_dlpack(memory)]
        whole = memory._create_view((count, *shape), dtype)
        return whole, [part._create_view(shape, dtype) for part in slices]

    def run(self):
        self.call["all_sums"](self.bank, self.weights, *self.sums)
        self.call["bank_mixes"](self.bank, *self.sums, self.mixes, self.lse)
        p, x = self.zero, self.first
        for s in range(self.sites):
            self.call["newest"](p, x, self.weight_of[s], self.p[s % 2], *self.p_sums)
            p, x = self.p[s % 2], self.x
            self.call["merge"](self.mix_of[s], self.lse_of[s], p, *self.p_sums, self.gain_of[s], x)
