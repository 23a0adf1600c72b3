#!/usr/bin/env python3
"""Rows of archs.def that the zoo has no file for: models of random weights, written here, and some of the logits that llama.cpp gave for
the same files (archs.txt). Usage: check_archs.py QUERN [FOLDER]; with a folder the files stay there, for another program to read."""
import array
import math
import os
import subprocess
import sys
import tempfile

from convert_files import write_gguf

QUERN, HERE = sys.argv[1], os.path.dirname(os.path.abspath(__file__))
WIDE, HEADS, KV, HEAD, FF, VOCAB = 32, 4, 2, 8, 48, 64
IDS = [(37 * i + 11) % VOCAB for i in range(24)]
PLACES = [(t, i) for t in (0, 11, 23) for i in (0, 21, 42, 63)]


class Model:
    def __init__(self, arch, layers, norm="attention.layer_norm_rms_epsilon", **keys):
        self.arch, self.layers, self.state, self.tensors = arch, layers, 1, {}
        self.keys = {"block_count": layers, "context_length": 64, "embedding_length": WIDE, "feed_forward_length": FF, "vocab_size": VOCAB,
                     "attention.head_count": HEADS, "attention.head_count_kv": KV, norm: 1e-5, "attention.key_length": HEAD,
                     "attention.value_length": HEAD, "rope.freq_base": 10000.0, **{k.replace("__", "."): v for k, v in keys.items()}}
        self.add("token_embd.weight", VOCAB, WIDE)
        self.add("output_norm.weight", WIDE, mean=1)

    def add(self, name, *shape, mean=0.0, spread=0.35):
        numbers = array.array("f")
        for _ in range(math.prod(shape)):
            self.state = (self.state * 1664525 + 1013904223) % 2 ** 32
            numbers.append(mean + spread * (self.state / 2 ** 31 - 1))
        self.tensors[name] = list(shape), numbers

    def block(self, layer, **shapes):
        for name, shape in shapes.items():
            self.add(f"blk.{layer}.{name}.weight", *shape, mean=1 if name.endswith(("norm", "norm_exps")) else 0)

    def attention(self, layer, kv=KV):
        self.block(layer, attn_q=(HEADS * HEAD, WIDE), attn_k=(kv * HEAD, WIDE), attn_v=(kv * HEAD, WIDE), attn_output=(WIDE, HEADS * HEAD))

    def network(self, layer, gate=True):
        if gate:
            self.block(layer, ffn_gate=(FF, WIDE))
        self.block(layer, ffn_up=(FF, WIDE), ffn_down=(WIDE, FF))

    def experts(self, layer, n=4, ff=16, shared=0, joined=False):
        self.block(layer, ffn_gate_inp=(n, WIDE), ffn_down_exps=(n, WIDE, ff))
        if joined:
            self.block(layer, ffn_gate_up_exps=(n, 2 * ff, WIDE))
        else:
            self.block(layer, ffn_gate_exps=(n, ff, WIDE), ffn_up_exps=(n, ff, WIDE))
        if shared:
            self.block(layer, ffn_gate_shexp=(shared, WIDE), ffn_up_shexp=(shared, WIDE), ffn_down_shexp=(WIDE, shared))

    def norms(self, layer, *names, width=WIDE):
        self.block(layer, **{name: (width,) for name in names})


def usual(arch, layers=2, norms=("attn_norm", "ffn_norm"), head_norms=False, output=True, kv=KV, **keys):
    m = Model(arch, layers, attention__head_count_kv=kv, **keys) if kv != KV else Model(arch, layers, **keys)
    for layer in range(layers):
        m.attention(layer, kv)
        m.norms(layer, *norms)
        if head_norms:
            m.norms(layer, "attn_q_norm", "attn_k_norm", width=HEAD)
    if output:
        m.add("output.weight", VOCAB, WIDE)
    return m


def dense(arch, **more):
    m = usual(arch, **more)
    for layer in range(m.layers):
        m.network(layer)
    return m


def halves(arch, **more):
    m = usual(arch, **more)
    for layer in range(m.layers):
        m.block(layer, ffn_up=(2 * FF, WIDE), ffn_down=(WIDE, FF))
    return m


def mixed(arch, first=0, shared=0, bias="", joined=False, all_heads=False, ff=16, **more):
    m = usual(arch, expert_count=4, expert_used_count=2, expert_feed_forward_length=ff, leading_dense_block_count=first,
              expert_shared_count=1 if shared else 0, **more)
    for layer in range(m.layers):
        if all_heads:
            m.norms(layer, "attn_q_norm", "attn_k_norm", width=HEADS * HEAD)
        if layer < first:
            m.network(layer)
        if layer >= first:
            m.experts(layer, ff=ff, shared=shared, joined=joined)
            if bias:
                m.add(f"blk.{layer}.{bias}", 4)
    return m


def arctic():
    m = usual("arctic", norms=("attn_norm", "ffn_norm", "ffn_norm_exps"), expert_count=4, expert_used_count=2)
    for layer in range(2):
        m.block(layer, ffn_gate=(WIDE, WIDE), ffn_up=(WIDE, WIDE), ffn_down=(WIDE, WIDE))
        m.experts(layer, ff=FF)
    return m


def latent(absorbed, **more):
    short, turns, rest, values = 12, 4, 8, 6
    lengths = (short + turns, short) if absorbed else (rest + turns, values)
    m = Model("deepseek2", 2, attention__kv_lora_rank=short, rope__dimension_count=turns, leading_dense_block_count=1, expert_shared_count=1,
              expert_count=4, expert_used_count=2, expert_feed_forward_length=16, expert_gating_func=2, expert_weights_norm=True,
              **{"attention.head_count_kv": 1 if absorbed else HEADS}, **more)
    m.keys |= {"attention.key_length": lengths[0], "attention.value_length": lengths[1], "attention.q_lora_rank": 10}
    if absorbed:
        m.keys |= {"attention.key_length_mla": rest + turns, "attention.value_length_mla": values}
    for layer in range(2):
        m.norms(layer, "attn_norm", "ffn_norm")
        m.norms(layer, "attn_kv_a_norm", width=short)
        m.norms(layer, "attn_q_a_norm", width=10)
        m.block(layer, attn_q_a=(10, WIDE), attn_q_b=(HEADS * (rest + turns), 10), attn_kv_a_mqa=(short + turns, WIDE),
                attn_output=(WIDE, HEADS * values))
        if absorbed:
            m.block(layer, attn_k_b=(HEADS, short, rest), attn_v_b=(HEADS, values, short))
        else:
            m.block(layer, attn_kv_b=(HEADS * (rest + values), short))
    m.network(0)
    m.experts(1, shared=16)
    m.add("blk.1.exp_probs_b.bias", 4)
    m.add("output.weight", VOCAB, WIDE)
    return m


LAYER, YARN = {"norm": "attention.layer_norm_epsilon"}, {"rope__scaling__type": "yarn", "rope__scaling__factor": 8.0,
                                                          "rope__scaling__original_context_length": 16}
POST = ("post_attention_norm", "post_ffw_norm")
MODELS = {
    "cohere2": lambda: dense("cohere2", layers=5, norms=("attn_norm",), output=False, logit_scale=0.25, attention__sliding_window=6, **LAYER),
    "exaone4": lambda: dense("exaone4", norms=POST, head_norms=True),
    "glm4": lambda: halves("glm4", norms=("attn_norm", "ffn_norm", *POST), rope__dimension_count=4),
    "chatglm": lambda: halves("chatglm", rope__dimension_count=4),
    "hunyuan-dense": lambda: dense("hunyuan-dense", head_norms=True, rope__scaling__alpha=50.0),
    "mistral3": lambda: dense("mistral3", attention__temperature_scale=0.1, rope__scaling__original_context_length=7),
    "baichuan": lambda: dense("baichuan", layers=32, kv=HEADS),
    "refact": lambda: dense("refact"),
    "plamo": lambda: dense("plamo", norms=("attn_norm",)),
    "minicpm": lambda: dense("minicpm"),
    "olmoe": lambda: mixed("olmoe", kv=HEADS, all_heads=True, ff=FF),
    "arctic": arctic,
    "glm4moe": lambda: mixed("glm4moe", first=1, shared=16, bias="exp_probs_b.bias", norms=("attn_norm", "post_attention_norm"), head_norms=True,
                             expert_weights_norm=True, expert_weights_scale=1.5),
    "hy_v3": lambda: mixed("hy_v3", shared=16, bias="exp_probs_b", joined=True, head_norms=True, expert_gating_func=2),
    "llama4": lambda: mixed("llama4", layers=5, shared=16, interleave_moe_layer_step=1),
    "smallthinker": lambda: mixed("smallthinker", layers=5, attention__sliding_window=4096, expert_gating_func=2),
    "exaone-moe": lambda: mixed("exaone-moe", layers=5, first=1, shared=16, bias="exp_probs_b.bias", head_norms=True,
                                attention__sliding_window=6, expert_gating_func=2, expert_weights_norm=True),
    "latent": lambda: latent(True), "latent-made": lambda: latent(False),
    "latent-yarn": lambda: latent(True, rope__scaling__yarn_log_multiplier=0.0707, **YARN),
    "latent-groups": lambda: latent(True, expert_group_count=2, expert_group_used_count=1),
}


def wanted():
    with open(os.path.join(HERE, "archs.txt"), encoding="utf-8") as file:
        rows = [line.split() for line in file if line.strip() and not line.startswith("#")]
    return {row[0]: [float(x) for x in row[1:]] for row in rows}


def logits(model, out):
    done = subprocess.run([QUERN, "eval", "-m", model, "--ids", " ".join(map(str, IDS)), "--logits", out, "-t", "1"], capture_output=True,
                          timeout=300)
    numbers = array.array("f")
    if done.returncode == 0:
        with open(out, "rb") as file:
            numbers.frombytes(file.read())
    return numbers, done.stderr.decode("utf-8", "replace").strip()


def main(folder):
    failures, want = 0, wanted()
    for name, make in MODELS.items():
        m, path = make(), os.path.join(folder, name + ".gguf")
        write_gguf(path, {"general.architecture": m.arch, "tokenizer.ggml.model": "no_vocab",
                          **{f"{m.arch}.{k}": v for k, v in m.keys.items()}}, m.tensors)
        got, said = logits(path, os.path.join(folder, "logits.f32"))
        some = [got[t * VOCAB + i] for t, i in PLACES] if len(got) == len(IDS) * VOCAB else []
        size = max(map(abs, want.get(name, [0])))
        ok = len(some) == len(want.get(name, [])) and all(abs(a - b) <= 1e-4 * size for a, b in zip(some, want[name]))
        failures += not ok
        if not ok:
            print("FAIL", name, said, [f"{x:.6g}" for x in some], want.get(name))
    print(f"{len(MODELS) - failures} passed, {failures} failed")
    return failures != 0


if len(sys.argv) > 2:
    sys.exit(main(sys.argv[2]))
with tempfile.TemporaryDirectory() as work:
    sys.exit(main(work))
