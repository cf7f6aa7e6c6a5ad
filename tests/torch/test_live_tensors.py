# SPDX-License-Identifier: Apache-2.0
"""Tensors that are not where, or not what, a loader thinks: each is loaded rightly, or refused by its name before a byte moves."""
import contextlib
import os
import socket
import tempfile
import threading
import unittest

import torch
from safetensors.torch import save_file

import loadplan
from loadplan import distributed


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(4, 4, device=DEVICE), requires_grad=False)
        self.v = torch.nn.Parameter(torch.zeros(4, 4, device=DEVICE), requires_grad=False)

    def load_weights(self, weights):
        for name, tensor in weights:
            getattr(self, name).data.copy_(tensor)


def live_tensors():
    return {name: torch.zeros(4, 4, device=DEVICE) for name in "vw"}


def equal(a, b):
    return torch.equal(a.cpu(), b.cpu())


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = os.path.join(cls.folder.name, "model.safetensors")
        generator = torch.Generator().manual_seed(3)
        cls.weights = {name: torch.randn(4, 4, generator=generator) for name in "vw"}
        save_file(cls.weights, path)
        model = Model()
        cls.trace = loadplan.record(model.load_weights, path, model)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @contextlib.contextmanager
    def refuses(self, status, text):
        with self.assertRaises(loadplan.LoadplanError) as caught:
            yield
        self.assertEqual(caught.exception.status, status)
        self.assertIn(text, str(caught.exception))


class Pair(torch.Tensor):
    """As a DTensor or a quantised tensor: its bytes are in others."""

    def __new__(cls, a, b):
        return torch.Tensor._make_wrapper_subclass(cls, a.size(), dtype=a.dtype)

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __tensor_flatten__(self):
        return ["a", "b"], None

    @classmethod
    def __torch_dispatch__(cls, operation, types, arguments=(), options=None):
        raise RuntimeError(f"{operation} looks at a tensor made of tensors")


def transposed(model):
    model.w.data = model.w.data.t()


def freed(model):
    model.w.untyped_storage().resize_(0)


def in_other_memory(model):
    model.w.data = torch.zeros(4, 4, device=DEVICE)


def another_parameter(model):
    model.w = torch.nn.Parameter(torch.zeros(4, 4, device=DEVICE), requires_grad=False)


def deleted(model):
    del model.w


def of_another_dtype(model):
    model.w = torch.nn.Parameter(torch.zeros(4, 4, dtype=torch.bfloat16, device=DEVICE), requires_grad=False)


class Destinations(Case):
    def test_a_parameter_that_moved_is_not_loaded_where_it_was(self):
        """Processing after a load, sleep, offloading: a plan that is used again would fill memory that nobody reads."""
        for change in (transposed, freed, in_other_memory, another_parameter, deleted, of_another_dtype):
            with self.subTest(change.__name__):
                model = Model()
                plan = loadplan.Plan(self.trace, model)
                old = model.w.data if change is not freed else None
                change(model)
                with self.refuses("LP_E_MISMATCH", "'w' is not where the plan was bound to it"):
                    plan.session("direct")
                self.assertTrue(old is None or not old.any())

    def test_the_same_memory_in_a_new_parameter_is_the_same_place(self):
        model = Model()
        plan = loadplan.Plan(self.trace, model)
        model.w = torch.nn.Parameter(model.w.data, requires_grad=False)
        with plan.session("direct") as session:
            for name, tensor in self.weights.items():
                session.push(name, tensor)
        self.assertTrue(equal(model.w, self.weights["w"]))

    def test_an_entry_of_a_dict_is_replaced(self):
        live = live_tensors()
        plan = loadplan.Plan(self.trace, live)
        live["v"] = torch.zeros(4, 4, device=DEVICE)
        with self.refuses("LP_E_MISMATCH", "'v' is not where"):
            plan.session("direct")

    def test_a_destination_that_negates_is_refused(self):
        with self.refuses("LP_E_UNSUPPORTED", "destination 'w' stands for other values"):
            loadplan.Plan(self.trace, {**live_tensors(), "w": torch._neg_view(torch.zeros(4, 4, device=DEVICE))})


class Pushes(Case):
    def push(self, tensor):
        live = live_tensors()
        with loadplan.Session(self.trace, live, "direct") as session:
            session.push("v", self.weights["v"])
            session.push("w", tensor)
        return live["w"]

    def test_what_a_tensor_stands_for_arrives(self):
        """Strides [vllm 57130], lazy negation, NaN payloads and zeros with a sign."""
        for device in sorted({"cpu", DEVICE}):
            whole = torch.arange(64.0, device=device).reshape(8, 8)
            bits = torch.tensor([0x7FC00001, 0x7F800001, -(1 << 31), -1], dtype=torch.int32, device=device).view(torch.float32)
            for name, tensor in {"steps": whole[::2, 1::2], "turned": whole[:4, 2:6].t(), "a row": whole[:1, :4].expand(4, 4),
                                 "one number": torch.ones((), device=device).expand(4, 4), "bits": bits.expand(4, 4),
                                 "imaginary part": torch.complex(whole, whole).conj().imag[:4, :4],
                                 "negated": torch._neg_view(whole[4:, 4:]), "a parameter": torch.nn.Parameter(whole[4:, 4:])}.items():
                with self.subTest(name, device=device):
                    arrived = self.push(tensor).view(torch.int32)
                    self.assertTrue(equal(arrived, tensor.detach().clone().contiguous().view(torch.int32)))

    def test_what_is_not_that_tensor_is_refused(self):
        w = self.weights["w"]
        empty = w.clone()
        empty.untyped_storage().resize_(0)
        for name, tensor, status, text in (
                ("dtype", w.bfloat16(), "LP_E_MISMATCH", "'w' is pushed as BF16 [4, 4], the plan knows it as F32 [4, 4]"),
                ("shape", w.reshape(2, 8), "LP_E_MISMATCH", "'w' is pushed as F32 [2, 8]"),
                ("meta", w.to("meta"), "LP_E_UNSUPPORTED", "'w' is on meta"),
                ("sparse", w.to_sparse(), "LP_E_UNSUPPORTED", "'w' is on cpu, torch.sparse_coo"),
                ("an array", w.numpy(), "LP_E_UNSUPPORTED", "'w' is a ndarray, not a tensor"),
                ("parts", Pair(w, w), "LP_E_UNSUPPORTED", "'w' is a Pair, made of other tensors"),
                ("freed", empty, "LP_E_ARGUMENT", "'w' is pushed without data"),
                ("zero", torch._efficientzerotensor((4, 4)), "LP_E_ARGUMENT", "'w' is pushed without data")):
            with self.subTest(name), self.refuses(status, text):
                self.push(tensor)

    def test_a_subset_of_nothing_is_nothing(self):
        """A rank that owns no tensor of a bucket waits for none, and loads none."""
        live = live_tensors()
        with loadplan.Session(self.trace, live, "direct", subset=[]) as session:
            self.assertEqual(session.missing(), [])
            with self.refuses("LP_E_UNKNOWN_NAME", "'w' is not in the subset"):
                session.push("w", self.weights["w"])
        self.assertEqual(session.report.names_loaded, 0)
        with self.assertRaises(ValueError):
            loadplan.Session(self.trace, live, "direct", subset="w")

    def test_a_closed_session_takes_nothing(self):
        session = loadplan.Session(self.trace, live_tensors(), "direct")
        session.close()
        for call in (lambda: session.push("w", self.weights["w"]), lambda: session.push_checkpoint(self.folder.name),
                     lambda: session.mark_loaded("w"), session.missing, session.finish):
            with self.refuses("LP_E_MISUSE", "the session is closed"):
                call()
        session.close()

    def test_a_bundle_follows_its_parameters(self):
        """An optimiser, or an offloading trainer, gives a parameter other memory: the old one would be sent for ever."""
        live = live_tensors()
        plan = loadplan.Plan(self.trace, live)
        trained = {name: torch.nn.Parameter(t.to(DEVICE, copy=True), requires_grad=False) for name, t in self.weights.items()}
        bundle = plan.bundle(trained)
        trained["w"].data = torch.full((4, 4), 7.0, device=DEVICE)
        with plan.session("direct") as session:
            session.push_many(bundle)
        self.assertTrue(equal(live["w"], trained["w"]))
        for form in (torch.zeros(4, 8, device=DEVICE)[:, :4], torch.zeros(2, 4, device=DEVICE)):
            trained["w"].data = form
            with self.refuses("LP_E_MISMATCH", "'w' has another form"):
                bundle.pointers()
        with self.refuses("LP_E_UNSUPPORTED", "negated"):
            plan.bundle({"w": torch._neg_view(self.weights["w"].to(DEVICE))})


class Epochs(Case):
    def epoch(self, weights, change=None):
        """What a receiver has after one epoch, and what both sides said."""
        model, said = Model(), {}
        plan = loadplan.Plan(self.trace, model)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            where = f"127.0.0.1:{s.getsockname()[1]}"

        def receive():
            try:
                with distributed.Receiver(plan, where, rank=0, size=1, join_timeout=20) as receiver:
                    receiver.receive()
            except loadplan.LoadplanError as error:
                said["receiver"] = str(error)

        thread = threading.Thread(target=receive)
        thread.start()
        try:
            with distributed.Sender(self.trace, where, rank=0, size=1, join_timeout=20) as sender:
                sender.send(weights)
        except loadplan.LoadplanError as error:
            said["sender"] = str(error)
        thread.join()
        return model, said

    def test_parts_of_a_larger_tensor_are_sent(self):
        """A parameter that lies in a flat or fused one: what is sent begins where it does, not where the memory does."""
        whole = torch.arange(64.0).reshape(16, 4)
        for name, tensor in {"rows": whole[4:8], "columns": whole.reshape(8, 8)[2:6, 3:7], "turned": whole[4:8].t(),
                             "negated": torch._neg_view(whole[8:12])}.items():
            with self.subTest(name):
                model, said = self.epoch({"v": whole[12:], "w": tensor})
                self.assertEqual(said, {})
                self.assertTrue(equal(model.w, tensor))
                self.assertTrue(equal(model.v, whole[12:]))

    def test_what_is_not_the_checkpoints_tensor_is_not_sent(self):
        """Master weights of a wider dtype, a fused or a flattened tensor under the name of another."""
        w = self.weights["w"]
        for name, tensor in {"wider": w.double(), "larger": torch.zeros(8, 4), "flat": w.reshape(16), "cut": w.bfloat16(),
                             "parts": Pair(w, w)}.items():
            with self.subTest(name):
                model, said = self.epoch({"v": self.weights["v"], "w": tensor})
                text = f"'w' is sent as {tensor.dtype} {list(tensor.shape)}, the trace knows it as torch.float32 [4, 4]"
                if name == "parts":
                    text = "'w' is a Pair, made of other tensors: give an ordinary one (of a DTensor, full_tensor())"
                self.assertEqual(said["sender"], text)
                self.assertIn(text, said["receiver"])
                self.assertFalse(model.v.any() or model.w.any())


    def test_pairs_may_come_in_one_buffer(self):
        """A parameter is gathered for one step of an iteration only [trl 6765]."""
        def gathered():
            for name, tensor in self.weights.items():
                yield name, buffer.copy_(tensor)
            buffer.untyped_storage().resize_(0)

        buffer = torch.empty(4, 4)
        model, said = self.epoch(gathered())
        self.assertEqual(said, {})
        self.assertTrue(equal(model.w, self.weights["w"]) and equal(model.v, self.weights["v"]))
        model, said = self.epoch({"v": self.weights["v"], "w": buffer})
        self.assertEqual(said["sender"], "'w' is sent without data")

    def test_a_rank_that_left_says_so(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            where = f"127.0.0.1:{s.getsockname()[1]}"
        thread = threading.Thread(target=lambda: distributed.Receiver(loadplan.Plan(self.trace, Model()), where, rank=0, size=1).close())
        thread.start()
        sender = distributed.Sender(self.trace, where, rank=0, size=1, join_timeout=20)
        thread.join()
        sender.close()
        with self.refuses("LP_E_MISUSE", "left the meeting"):
            sender.send(self.weights)
        sender.close()


del Case

if __name__ == "__main__":
    torch.set_grad_enabled(False)
    unittest.main()
