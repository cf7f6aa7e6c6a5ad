# SPDX-License-Identifier: Apache-2.0
"""Records vLLM's own loaders, every rank, replays the traces and compares with what the loaders themselves load.

python vllm_loaders.py [--processed] [family ...] prints a row for each family and layout; exit code 1 when bytes differ.
With --processed, only what post-load processing makes of the weights.
"""
import collections
import json
import os
import re
import sys
import tempfile
import time

import torch

import loadplan
import loadplan.vllm
import vllm_families
from loadplan._session import named_tensors
from children import tried_in_child

LAYOUTS = ((1, False), (2, False), (4, False), (2, True))


def data(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def disturb(model, seed):
    """Another start than zero, so that bytes nobody writes are seen."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in dict(model.named_parameters(remove_duplicate=False)).items():
        if "input_scale" in name:
            continue  # a loader asks whether it was written before
        raw = torch.empty(0, dtype=torch.uint8).set_(tensor.data.untyped_storage())
        if tensor.dtype.is_floating_point or tensor.dtype == torch.uint8:
            raw.copy_(torch.randint(0, 60, raw.shape, generator=generator, dtype=torch.uint8))


def one_rank(folder, tp, rank, ep, out):
    config, model = loadplan.vllm.start(folder, tp, rank, ep)
    disturb(model, rank)
    return compare(named_tensors(model), lambda: loadplan.vllm.record(folder, config, model),
                   lambda: model.load_weights(loadplan.vllm.weights(config, model)), folder, os.path.join(out, f"rank-{rank}.lpt"))


def compare(tensors, record, load, checkpoint, path):
    """What record() keeps, saved to `path`, against what load() does to the tensors, from the bytes that they hold now."""
    initial = {name: t.detach().clone() for name, t in tensors.items()}
    began = time.monotonic()
    trace = record()
    recording = time.monotonic() - began
    changed = [name for name, t in tensors.items() if not torch.equal(data(t), data(initial[name]))]
    trace.save(path, overwrite=True)
    trace = loadplan.Trace.open(path)

    began = time.monotonic()
    load()
    loading = time.monotonic() - began
    real = {name: t.detach().clone() for name, t in tensors.items()}
    for name, t in tensors.items():
        t.data.copy_(initial[name])
    with loadplan.Session(trace, tensors, "direct", allow_fallbacks=True) as session:
        session.push_checkpoint(checkpoint)
    fallback = {r["destination"] for r in trace.refusals}
    approximate = {r["destination"] for r in trace.query("SELECT * FROM v_derives") if "exp" in r["nodes"] or "log" in r["nodes"]}
    differs = []
    for name, t in tensors.items():
        if name in fallback:
            continue
        if name in approximate:
            if not torch.allclose(t.float(), real[name].float(), rtol=1e-6):
                differs.append(name + " (approximate)")
        elif not torch.equal(data(t), data(real[name])):
            differs.append(name)
    count = lambda table: int(trace.query(f"SELECT count(*) AS n FROM {table}")[0]["n"])  # noqa: E731
    findings = collections.Counter(f"{f.rule}" for f in trace.check())
    return dict(records=count("v_records"), derives=count("v_derives"), refusals=count("v_refusals"), differs=differs,
                changed=changed, recording=recording, loading=loading, findings=dict(findings),
                denied=[f"{f.rule} {f.tensor}" for f in trace.check() if f.level == "deny"],
                reasons=sorted({f"{r['operation']}: {r['reason']} ({r['file']}:{r['line']})" for r in trace.refusals}),
                kinds=sorted({r["kind"] for r in trace.query("SELECT DISTINCT kind FROM v_records")}))


def processed_tensors(folder, tp, rank, ep):
    """What vLLM's loader and its post-load processing really make."""
    config, model = loadplan.vllm.start(folder, tp, rank, ep)
    zero(model)
    model.load_weights(loadplan.vllm.weights(config, model))
    loadplan.vllm.process(config, model)
    return {name: data(t).numpy().tobytes() for name, t in named_tensors(model).items() if t.layout is torch.strided}


def zero(model):
    for tensor in model.parameters():
        torch.empty(0, dtype=torch.uint8).set_(tensor.data.untyped_storage()).zero_()


def one_rank_processed(folder, tp, rank, ep, real):
    """Records loading and processing as one, replays into blank tensors of the processed form, compares with `real`."""
    config, model = loadplan.vllm.start(folder, tp, rank, ep)
    zero(model)
    initial = {name: t.detach().clone() for name, t in named_tensors(model).items() if t.layout is torch.strided}
    trace = loadplan.vllm.record(folder, config, model, processed=True)
    blank, storages = {}, {}
    for row in trace.query("SELECT * FROM v_destinations"):
        dtype = loadplan._forms.BY_NUMBER[next(i + 1 for i, d in enumerate(loadplan._files.DTYPES) if d == row["dtype"])]
        size = int(row["storage_bytes"])
        storage = storages.setdefault(row["storage"], torch.zeros(max(size, 1), dtype=torch.uint8).untyped_storage())
        stride = [int(s) // dtype.itemsize for s in json.loads(row["stride"])]
        blank[row["name"]] = torch.empty(0, dtype=dtype).set_(storage, int(row["storage_offset"]) // dtype.itemsize,
                                                              json.loads(row["shape"]), stride)
    for name, t in initial.items():
        if name in blank and blank[name].shape == t.shape and blank[name].dtype == t.dtype:
            blank[name].copy_(t)
    with loadplan.Session(trace, blank, "direct", allow_fallbacks=True) as session:
        session.push_checkpoint(folder)
    # What a refused name feeds is the engine's to load; so is what is computed of it.
    refused = {r["name"] for r in trace.refusals}
    whole = {r["destination"] for r in trace.query("SELECT destination, sum(bytes) AS n FROM v_records GROUP BY destination")
             if int(r["n"]) == blank[r["destination"]].numel() * blank[r["destination"]].itemsize}
    close = set()
    for r in trace.query("SELECT * FROM v_derives"):
        names = set(re.findall(r'name "([^"]*)"', r["inputs"]))
        if r["destination"] and not names & refused and set(re.findall(r'dest "([^"]*)"', r["inputs"])) <= whole:
            (close if "exp " in r["nodes"] or "log " in r["nodes"] else whole).add(r["destination"])
    gone = {name for name in whole | close if name not in real or len(real[name]) != data(blank[name]).numel()}
    differs = [name for name in sorted(whole - gone) if data(blank[name]).numpy().tobytes() != real[name]]
    differs += [name for name in sorted(close - gone) if not torch.allclose(
        blank[name].float(), torch.frombuffer(bytearray(real[name]), dtype=blank[name].dtype).reshape(blank[name].shape).float(),
        rtol=1e-6)]
    return dict(compared=len((whole | close) - gone), gone=len(gone), rebound=len(trace.rebound),
                derives=int(trace.query("SELECT count(*) AS n FROM v_derives")[0]["n"]), refusals=len(refused), differs=differs,
                reasons=sorted({f"{r['operation']} at {r['file']}:{r['line']}" for r in trace.refusals}))


def save_family(family, folder):
    vllm_families.save(family, folder)


PROCESSED = ("llama", "mixtral", "llama_nvfp4", "qwen3_moe_nvfp4", "mamba2", "longcat", "gpt_oss_mxfp4", "falcon_h1")


def main_processed(families):
    """Loading and post-load processing as one trace, rank 0 of TP 1."""
    failed = 0
    for family in families:
        with tempfile.TemporaryDirectory() as folder:
            said = tried_in_child(save_family, family, folder)
            real = said if said is not None else tried_in_child(processed_tensors, folder, 1, 0, False)
            result = real if isinstance(real, str) else tried_in_child(one_rank_processed, folder, 1, 0, False, real)
            if isinstance(result, str):
                print(f"{family}: failed\n{result}")
                failed += 1
                continue
            failed += bool(result["differs"]) or not result["compared"]
            print(f"{family:18} processed: {result['compared']} tensors equal, {result['gone']} no longer there, "
                  f"{result['rebound']} rebound, {result['derives']} derives, {result['refusals']} refusals", flush=True)
            for line in (*result["reasons"], *[f"DIFFERS {name}" for name in result["differs"][:8]]):
                print(f"    {line}")
    return failed


def main():
    families = [a for a in sys.argv[1:] if not a.startswith("-")] or list(vllm_families.FAMILIES)
    failed = main_processed([f for f in families if f in PROCESSED])
    if "--processed" in sys.argv:
        sys.exit(failed > 0)
    for family in families:
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as out:
            said = tried_in_child(save_family, family, folder)
            if said is not None:
                print(f"{family}: cannot make the checkpoint\n{said}")
                failed += 1
                continue
            for tp, ep in LAYOUTS:
                if ep and not vllm_families.FAMILIES[family][1]:
                    continue
                for rank in range(tp):
                    result = tried_in_child(one_rank, folder, tp, rank, ep, out)
                    label = f"{family:18} {'EP' if ep else 'TP'} {tp} rank {rank}"
                    if isinstance(result, str):
                        print(f"{label}: failed\n{result}")
                        failed += 1
                        break
                    failed += bool(result["differs"] or result["changed"])
                    print(f"{label}: {result['records']} records ({' '.join(result['kinds'])}), {result['derives']} derives, "
                          f"{result['refusals']} refusals, {len(result['differs'])} differ; "
                          f"record {result['recording']:.2f} s, load {result['loading']:.2f} s; {result['findings']}", flush=True)
                    for line in (*result["reasons"][:6], *[f"DIFFERS {n}" for n in result["differs"][:8]],
                                 *[f"CHANGED {n}" for n in result["changed"][:8]], *sorted(set(result["denied"]))[:6]):
                        print(f"    {line}")
    print(f"{failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
