# SPDX-License-Identifier: Apache-2.0
"""Every model type of transformers that can be made small: from_pretrained, recorded, replayed, compared with itself.

python transformers_every.py [--only NAME,...] prints a row for each; what cannot be made is said with its reason.
"""
import argparse
import collections
import logging
import os
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1")

import torch  # noqa: E402
import transformers as tf  # noqa: E402
from transformers.models.auto import modeling_auto  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES  # noqa: E402

import loadplan  # noqa: E402
import small_models  # noqa: E402
from loadplan._session import named_tensors  # noqa: E402
from test_recording import data  # noqa: E402
from children import tried_in_child, why  # noqa: E402

_KINDS = ("CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "PRETRAINING", "MASKED_LM")


def architectures():
    """One class for each model type, of the most specific kind."""
    found = {}
    for model_type in CONFIG_MAPPING_NAMES:
        for kind in (*(f"MODEL_FOR_{kind}_MAPPING_NAMES" for kind in _KINDS), "MODEL_MAPPING_NAMES"):
            name = getattr(modeling_auto, kind, {}).get(model_type)
            if name is not None:
                found[name if isinstance(name, str) else name[0]] = None
                break
    return sorted(name for name in found if isinstance(getattr(tf, name, None), type))


def one(architecture, folder):
    torch.manual_seed(1)
    made, kind = small_models.small_model(architecture, small_models.SPECIAL.get(architecture), 40_000_000), getattr(tf, architecture)
    for tensor in (*made.parameters(), *made.buffers()):
        if tensor.dtype.is_floating_point:
            tensor.normal_()
    made.to(torch.bfloat16).save_pretrained(folder)
    real = kind.from_pretrained(folder, dtype=torch.bfloat16)
    with loadplan.capture(folder, loader="torch:transformers") as recording:
        recording.add(kind.from_pretrained(folder, dtype=torch.bfloat16))
    trace = recording.trace
    tensors = {name: t for name, t in named_tensors(real).items() if t.layout is torch.strided}
    wanted = {name: t.detach().clone() for name, t in tensors.items()}
    written = {row["destination"] for row in trace.rows} | {row["destination"] for row in trace.query("SELECT * FROM v_derives")}
    for name in written & tensors.keys():
        tensors[name].data.zero_()
    with loadplan.Session(trace, real, "direct", allow_fallbacks=True) as session:
        session.push_checkpoint(folder)
    fallback = {row["destination"] for row in trace.refusals}
    declared = {row["name"] for row in trace.query("SELECT name FROM v_destinations")}
    differs = [name for name, t in tensors.items() if name not in fallback and not torch.equal(data(t), data(wanted[name]))]
    return dict(records=len(trace.rows), kinds=sorted({row["kind"] for row in trace.rows}),
                derives=len(trace.query("SELECT * FROM v_derives")), refusals=len(trace.refusals),
                differs=differs + [f"{name} (not in the trace)" for name, _ in real.named_parameters() if name not in declared],
                reasons=sorted({f"{r['operation']}: {r['reason']} ({r['file']}:{r['line']})" for r in trace.refusals}),
                unrecorded=[*trace.unrecorded, *trace.initialised])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="beginnings of class names, by commas")
    only = tuple(parser.parse_args().only.split(","))
    logging.disable(logging.CRITICAL)
    tally = collections.Counter()
    for architecture in architectures():
        if not architecture.startswith(only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            result = tried_in_child(one, architecture, folder)
        if isinstance(result, str):
            print(f"{architecture}: not made: {why(result)}", flush=True)
            tally["not made"] += 1
            continue
        tally["differ" if result["differs"] else "refused" if result["refusals"] else "equal"] += 1
        print(f"{architecture}: {result['records']} records ({' '.join(result['kinds'])}), {result['derives']} derives, "
              f"{result['refusals']} refusals {' '.join(result['unrecorded'][:3])}"
              f"{' DIFFERS ' + str(result['differs'][:4]) if result['differs'] else ''}", flush=True)
        for reason in result["reasons"][:4]:
            print(f"    {reason}")
    print(dict(tally))
    return tally["differ"] > 0


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    sys.exit(main())
