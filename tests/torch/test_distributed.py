# SPDX-License-Identifier: Apache-2.0
"""Weights between a trainer and servers through the Python interface: a sender and receivers, each in its own thread."""
import os
import socket
import tempfile
import threading
import unittest

import torch
from safetensors.torch import save_file

import loadplan
from loadplan import distributed


class Server(torch.nn.Module):
    """Fused and transposed parameters, and one that is cast."""

    def __init__(self):
        super().__init__()
        for name, shape, dtype in (("fused", (8, 6), torch.bfloat16), ("turned", (6, 4), torch.bfloat16),
                                   ("wide", (6,), torch.float32)):
            self.register_parameter(name, torch.nn.Parameter(torch.zeros(shape, dtype=dtype), requires_grad=False))

    def load_weights(self, weights):
        for name, tensor in weights:
            if name == "gate":
                self.fused[:4].copy_(tensor)
            elif name == "up":
                self.fused[4:].copy_(tensor)
            elif name == "down":
                self.turned.copy_(tensor.t())
            elif name == "norm":
                self.wide.copy_(tensor.float())


class Trainer(torch.nn.Module):
    """The same checkpoint in parameters that keep its bytes."""

    def __init__(self):
        super().__init__()
        for name, shape in (("pair", (4, 12)), ("down", (4, 6)), ("norm", (6,))):
            parameter = torch.nn.Parameter(torch.zeros(shape, dtype=torch.bfloat16), requires_grad=False)
            self.register_parameter(name, parameter)

    def load_weights(self, weights):
        for name, tensor in weights:
            if name in ("gate", "up"):
                self.pair[:, 6 * (name == "up"):][:, :6].copy_(tensor)
            else:
                dict(self.named_parameters())[name].copy_(tensor)


def weights(epoch):
    torch.manual_seed(7)
    tensors = {name: torch.randn(shape).to(torch.bfloat16)
               for name, shape in (("down", (4, 6)), ("gate", (4, 6)), ("norm", (6,)), ("up", (4, 6)))}
    for step in range(1, epoch):
        tensors["gate"][step % 4, step % 6] += 1
        tensors["norm"][step % 6] -= 1
    return tensors


class Distributed(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        path = os.path.join(self._folder.name, "model.safetensors")
        save_file(weights(1), path)
        model = Server()
        self.trace = loadplan.record(model.load_weights, path, model)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.where = f"127.0.0.1:{s.getsockname()[1]}"

    def tearDown(self):
        self._folder.cleanup()

    def run_world(self, mode, epochs, send, trace=None):
        """What two servers report, and their models; send(sender, epoch) runs in this thread. trace: the sender's."""
        models = [Server(), Server()]
        reports = [[], []]

        def serve(number):
            plan = loadplan.Plan(self.trace, models[number])
            with distributed.Receiver(plan, self.where, rank=0, size=1, group=f"server {number}", join_timeout=20) as receiver:
                for _ in range(epochs):
                    try:
                        reports[number].append(receiver.receive())
                    except loadplan.LoadplanError as error:
                        reports[number].append(error)

        threads = [threading.Thread(target=serve, args=(n,)) for n in range(2)]
        for thread in threads:
            thread.start()
        with distributed.Sender(trace or self.trace, self.where, mode, rank=0, size=1, servers=2, join_timeout=20) as sender:
            for epoch in range(1, epochs + 1):
                send(sender, epoch)
        for thread in threads:
            thread.join(20)
        return reports, models

    def assert_loaded(self, models, epoch):
        want = Server()
        want.load_weights(weights(epoch).items())
        for model in models:
            for name, tensor in want.named_parameters():
                self.assertTrue(torch.equal(tensor, dict(model.named_parameters())[name]), name)

    def test_every_mode_loads_the_last_epoch(self):
        for mode in ("packed", "sliced", "delta"):
            with self.subTest(mode):
                reports, models = self.run_world(mode, 3, lambda sender, epoch: sender.send(weights(epoch)))
                self.assert_loaded(models, 3)
                for seen in reports:
                    self.assertEqual([r.epoch for r in seen], [1, 2, 3])
                    self.assertEqual(seen[2].mode, mode)
                    self.assertEqual(len(seen[2].content), 64)
                if mode == "delta":
                    self.assertLess(reports[0][2].bytes_moved, reports[0][0].bytes_moved)

    def test_a_plan_is_sent_from_its_live_tensors(self):
        trainer = Trainer()
        trace = loadplan.record(trainer.load_weights, os.path.join(self._folder.name, "model.safetensors"), trainer)
        plan = loadplan.Plan(trace, trainer)

        def send(sender, epoch):
            trainer.load_weights(weights(epoch).items())
            sender.send(plan)

        for mode in ("packed", "sliced", "delta"):
            with self.subTest(mode):
                self.assert_loaded(self.run_world(mode, 3, send, trace)[1], 3)

    def test_a_transport_that_is_not_there_is_told(self):
        with self.assertRaisesRegex(ValueError, "'mpi' is no transport"):
            distributed.Sender(self.trace, self.where, rank=0, size=1, transport="mpi")
        if not torch.cuda.is_available():
            with self.assertRaises(loadplan.LoadplanError):
                distributed.Sender(self.trace, self.where, rank=0, size=1, transport="nccl")

    def test_a_missing_weight_ends_the_epoch_for_all(self):
        def send(sender, epoch):
            if epoch != 2:
                sender.send(weights(epoch))
                return
            part = weights(epoch)
            del part["up"]
            with self.assertRaisesRegex(loadplan.LoadplanError, "'up' is not among the weights"):
                sender.send(part)

        reports, models = self.run_world("packed", 3, send)
        self.assert_loaded(models, 3)
        for seen in reports:
            self.assertEqual(seen[1].status, "LP_E_PEER")
            self.assertIn("sender 0", str(seen[1]))
            self.assertIn("'up' is not among the weights", str(seen[1]))
            self.assertEqual(seen[2].epoch, 3)


if __name__ == "__main__":
    unittest.main()
