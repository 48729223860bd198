"""A pretended CUDA device: the CPU computes, and what a card would refuse is refused.

    with pretended_cuda():
        model.to("cuda")(images)      # RuntimeError where `images` were left on the CPU

Every call of torch passes a `TorchFunctionMode` that knows which tensors were put on "the card". Code under test sees
what it would see on a card: `torch.cuda.is_available()`, `tensor.device`, streams, pinned memory, a random generator of
the device's own, the ways that are taken on a card alone (`is_cuda`, autocast, GradScaler). Refused, as a card refuses
it: tensors of two devices in one call, an index on the card into a tensor on the CPU, NumPy's view of a tensor on the
card, pinning such a tensor, a generator of the other device.

Not seen: a card's rounding and speed, the order in which it works, what C++ calls by itself (the formulas of autograd;
a backward pass written in Python is seen), and the inside of functions that torch composes in Python, of which the
arguments alone are checked.
"""

from __future__ import annotations

import contextlib
import functools
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

__all__ = ["PretendedCuda", "pretended_cuda"]

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
# functions that take random numbers, from the generator of the device that they work on
DRAWS = set(
    "dropout bernoulli bernoulli_ multinomial rand randn randint randperm rand_like randn_like randint_like normal "
    "normal_ uniform_ exponential_ random_".split()
)
CROSSES = {
    "to",
    "cuda",
    "cpu",
    "copy_",
    "tensor",
    "as_tensor",
    "asarray",
    "new_tensor",
    "_has_compatible_shallow_copy_type",
    "type",
}  # take tensors of any device, or settle it themselves
READS = {"numpy", "__array__", "__dlpack__"}  # see the CPU's memory alone


def _getter(name: str):
    return getattr(Tensor, name).__get__


class PretendedCuda(TorchFunctionMode):
    "The mode; `pretended_cuda` also puts `torch.cuda` in its place."

    def __init__(self):
        super().__init__()
        self.known: dict[
            int, tuple[StorageWeakRef, str]
        ] = {}  # the weak reference keeps a storage's number from being used again
        self.calls = 0  # that worked on the card
        self.random = torch.Generator().manual_seed(1234).get_state()  # where the card's own generator stands
        self.getters = {
            _getter("device"): self.device_of,
            _getter("is_cuda"): lambda t: self.on(t) == "cuda",
            _getter("is_cpu"): lambda t: self.on(t) == "cpu",
        }

    # --- who lies where ---

    def on(self, tensor: Tensor) -> str:
        """cuda, cpu, or the name of a real other device. What was never seen lies on the CPU; in a backward pass, on
        the card.
        """
        if tensor.device.type != "cpu":
            return tensor.device.type
        return self._known(tensor) or ("cuda" if torch._C._current_graph_task_id() != -1 else "cpu")

    def device_of(self, tensor: Tensor) -> torch.device:
        "What `tensor.device` says."
        where = self.on(tensor)
        return CUDA if where == "cuda" else CPU if where == "cpu" else tensor.device

    def _known(self, tensor: Tensor) -> str | None:
        found = self.known.get(tensor.untyped_storage()._cdata)
        return found[1] if found else None

    def put(self, tensor: Tensor, where: str) -> Tensor:
        "Remember where a tensor lies."
        storage = tensor.untyped_storage()
        self.known[storage._cdata] = StorageWeakRef(storage), where
        if len(self.known) > 50_000:
            self.known = {number: entry for number, entry in self.known.items() if not entry[0].expired()}
        return tensor

    # --- a call ---

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), getattr(function, "__name__", "")
        if function in self.getters:
            return self.getters[function](args[0])
        if function == _getter("grad"):
            found = function(*args)
            return found if found is None or self._known(found) else self.put(found, self.on(args[0]))
        if function is Tensor.backward:
            with self:  # so that backward passes written in Python are seen
                kwargs["grad_tensors"] = kwargs.pop("gradient", None)
                return torch.autograd.backward(*args, **kwargs)
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor) and not t.is_meta]
        self._refuse(name, args, kwargs, given)
        if name in ("pin_memory", "is_pinned", "record_stream"):
            return self._memory(name, args[0])
        if name in ("to", "cuda", "cpu") and given:
            return self._moved(name, function, args, kwargs)
        return self._computed(name, function, args, kwargs, given)

    def _refuse(self, name: str, args, kwargs, given: list[Tensor]) -> None:
        "What a card, or torch before it asks the card, would not do."
        if name in READS and self.on(args[0]) == "cuda":
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy: copy it to host memory first"
            )
        if name == "record_stream" and self.on(args[0]) != "cuda":
            raise RuntimeError("record_stream takes tensors of the card")
        if name in ("__getitem__", "__setitem__"):
            at = [t for t in tree_leaves(args[1]) if isinstance(t, Tensor)]
            if self.on(args[0]) == "cpu" and any(t.ndim and self.on(t) == "cuda" for t in at):
                raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
            value = args[2] if name == "__setitem__" else None
            if (
                at
                and isinstance(value, Tensor)
                and value.ndim
                and {self._known(value), self._known(args[0])} == {"cpu", "cuda"}
            ):
                raise RuntimeError(
                    "Expected all tensors to be on the same device: an indexed tensor and what is put into it"
                )
        elif name not in CROSSES and not name.startswith("__get") and name != "__set__":
            where = {self._known(t) for t in given if t.ndim or self._known(t) == "cuda"}
            if {"cpu", "cuda"} <= where:
                raise RuntimeError(
                    f"Expected all tensors to be on the same device, but found cuda:0 and cpu in {name}"
                )

    def _memory(self, name: str, tensor: Tensor):
        "Pinned memory and streams, of which the pretended card knows the rules alone."
        if name == "is_pinned":
            return False
        if name == "pin_memory" and self.on(tensor) != "cpu":
            raise RuntimeError("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned")
        return self.put(tensor.clone(), "cpu") if name == "pin_memory" else None

    def _moved(self, name: str, function, args, kwargs):
        "`.to`, `.cuda`, `.cpu`: a copy where the device changes."
        tensor, args = args[0], list(args)
        target = {"cuda": "cuda", "cpu": "cpu"}.get(name)
        for place, value in [*enumerate(args[1:], 1), *kwargs.items()]:
            holder = args if isinstance(place, int) else kwargs
            if isinstance(value, Tensor):  # like another tensor
                target, holder[place] = self.on(value), value
            elif isinstance(value, (torch.device, str)) and place in (*range(9), "device"):
                target = torch.device(value).type
                holder[place] = CPU if target == "cuda" else value
        target = target or self.on(tensor)
        if name == "cuda":
            function, args, kwargs = Tensor.to, [tensor, CPU], {k: v for k, v in kwargs.items() if k != "device"}
        out = function(*args, **kwargs)
        if target not in ("cuda", "cpu"):
            return out
        if self.on(tensor) != target and out.untyped_storage()._cdata == tensor.untyped_storage()._cdata:
            out = out.clone()
        self.calls += target == "cuda"
        return out if out is tensor and self.on(tensor) == target else self.put(out, target)

    def _computed(self, name: str, function, args, kwargs, given: list[Tensor]):
        "Any other call: on the CPU, its results where the card would have them."
        wanted = kwargs.get("device")
        wanted = (
            torch.device(wanted).type
            if wanted is not None and not isinstance(wanted, int)
            else "cuda"
            if wanted is not None
            else None
        )
        if wanted == "cuda":
            kwargs["device"] = CPU
        if kwargs.pop("pin_memory", False) and wanted == "cuda":
            raise RuntimeError("Only dense CPU tensors can be pinned")
        inputs = [self._known(t) for t in given]
        where = wanted or (
            "cuda"
            if "cuda" in inputs or (given and not any(inputs) and torch._C._current_graph_task_id() != -1)
            else "cpu"
        )
        generator = kwargs.get("generator")
        if generator is not None and getattr(generator, "on", "cpu") != where:
            raise RuntimeError(
                f"Expected a '{where}' device type for generator but found '{getattr(generator, 'on', 'cpu')}'"
            )
        with self._generator(name in DRAWS and where == "cuda" and generator is None):
            out = function(*args, **kwargs)
        self.calls += where == "cuda"
        before = {t.untyped_storage()._cdata for t in given}
        for t in tree_leaves(out):
            if (
                isinstance(t, Tensor)
                and not t.is_meta
                and (t.untyped_storage()._cdata not in before or self._known(t) is None)
            ):
                # a copy from elsewhere is a copy: as_tensor(x, device="cuda") never shares x's memory
                self.put(t, where)
        if wanted in ("cuda", "cpu") and name in CROSSES and isinstance(out, Tensor) and self.on(out) != wanted:
            out = self.put(out.clone(), wanted)
        return out

    @contextlib.contextmanager
    def _generator(self, own: bool):
        "Random numbers from the card's generator, where `own`."
        if not own:
            yield
            return
        cpu = torch.get_rng_state()
        torch.set_rng_state(self.random)
        yield
        self.random = torch.get_rng_state()
        torch.set_rng_state(cpu)


class _Generator(torch.Generator):
    "A generator that knows for which device it was made."

    def __new__(cls, device="cpu"):
        made = super().__new__(cls)
        made.on = torch.device(device).type
        return made

    def __init__(self, device="cpu"):
        pass


class _Stream:
    "Stands for streams and events, which have nothing to wait for here."

    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name: str):
        return lambda *args, **kwargs: _Stream()


def _as_on_a_cpu(autocast):
    "torch.autocast, which casts what a CPU computes where it is asked for the card."

    class Autocast(autocast):
        def __init__(self, device_type, *args, **kwargs):
            super().__init__("cpu" if device_type == "cuda" else device_type, *args, **kwargs)

    return Autocast


def _places(mode: PretendedCuda, capability: tuple[int, int]) -> dict:
    "What stands for the functions of `torch.cuda`."
    always = lambda value: lambda *args, **kwargs: value

    def seed(number: int) -> None:
        mode.random = torch.Generator().manual_seed(number).get_state()

    def set_state(state, device="cuda") -> None:
        mode.random = state.clone()

    return {
        **{name: always(True) for name in ("is_available", "is_initialized", "is_bf16_supported")},
        **{
            name: always(None)
            for name in ("init", "_lazy_init", "synchronize", "empty_cache", "reset_peak_memory_stats", "set_device")
        },
        **{name: always(0) for name in ("current_device", "memory_allocated", "max_memory_allocated")},
        "is_current_stream_capturing": always(False),
        "device_count": always(1),
        "mem_get_info": always((2**34, 2**34)),
        "get_device_name": always("a pretended card"),
        "get_device_capability": always(capability),
        "get_rng_state": lambda device="cuda": mode.random.clone(),
        "set_rng_state": set_state,
        "manual_seed": seed,
        "manual_seed_all": seed,
        "Stream": _Stream,
        "Event": _Stream,
        "current_stream": _Stream,
        "stream": lambda stream: contextlib.nullcontext(),
        "device": lambda device: contextlib.nullcontext(),
    }


@contextlib.contextmanager
def pretended_cuda(capability: tuple[int, int] = (8, 0)):
    """A machine with one card, as far as this process's code can see.

    Args:
        capability: the card's compute capability; below (8, 0) it has no bfloat16 of its own.

    Yields:
        the mode; its `calls` counts what was asked of the card.
    """
    from accelerate.state import AcceleratorState

    mode = PretendedCuda()
    threads = functools.partial(ThreadPoolExecutor, initializer=mode.__enter__)  # modes belong to a thread
    cast = _as_on_a_cpu(torch.autocast)
    AcceleratorState._reset_state(True)  # it remembers the first device that it saw
    with contextlib.ExitStack() as stack:
        for name, stand_in in _places(mode, capability).items():
            stack.enter_context(mock.patch.object(torch.cuda, name, stand_in))
        for owner in (torch, torch.amp, torch.amp.autocast_mode):
            stack.enter_context(mock.patch.object(owner, "autocast", cast))
        if hasattr(torch, "accelerator"):  # asked for streams by optimisers; it looks for a driver
            stack.enter_context(mock.patch.object(torch.accelerator, "current_accelerator", lambda **how: None))
        stack.enter_context(mock.patch.object(torch, "Generator", _Generator))
        stack.enter_context(mock.patch("smoothap_nb.losses.fused.use_triton", False))  # no card, no kernel
        stack.enter_context(mock.patch("smoothap_nb.data.loading.ThreadPoolExecutor", threads))
        stack.enter_context(mode)
        try:
            yield mode
        finally:
            AcceleratorState._reset_state(True)
