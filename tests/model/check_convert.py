#!/usr/bin/env python3
"""quern convert: models of the zoo are written back as Hugging Face folders, by tables of this file's own, and converted again; the
logits must be those that were given. What the zoo does not have (groups of heads, part of a head turned, gemma 3, encoders, blocks of
MXFP4) is held against a GGUF file of random weights that this file writes itself. Usage: check_convert.py QUERN DATA"""
import array
import math
import os
import random
import resource
import struct
import subprocess
import sys
import tempfile

from convert_files import behind, charsmap, cut, from_rows, grouped, halves, interleaved, read_gguf, row_list, scaled, sentencepiece, turned, write_folder, \
    write_gguf, write_words

QUERN, DATA = sys.argv[1], sys.argv[2]
IDS = [(37 * i + 11) % 128 for i in range(24)]
failures = passed = 0


def check(ok, what):
    global failures, passed
    passed += bool(ok)
    failures += not ok
    if not ok:
        print("FAIL", what)


def quern(*words):
    done = subprocess.run([QUERN, *words], capture_output=True, timeout=300)
    return done.returncode, done.stderr.decode("utf-8", "replace").strip()


# ---- Tables: GGUF name to the name there. {} is the layer.
USUAL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head", "attn_norm": "model.layers.{}.input_layernorm",
         "attn_q": "model.layers.{}.self_attn.q_proj", "attn_k": "model.layers.{}.self_attn.k_proj",
         "attn_v": "model.layers.{}.self_attn.v_proj", "attn_output": "model.layers.{}.self_attn.o_proj",
         "attn_q_norm": "model.layers.{}.self_attn.q_norm", "attn_k_norm": "model.layers.{}.self_attn.k_norm",
         "ffn_norm": "model.layers.{}.post_attention_layernorm", "ffn_gate": "model.layers.{}.mlp.gate_proj",
         "ffn_up": "model.layers.{}.mlp.up_proj", "ffn_down": "model.layers.{}.mlp.down_proj",
         "ffn_gate_inp": "model.layers.{}.mlp.gate", "ffn_gate_exps": "model.layers.{}.mlp.experts.#.gate_proj",
         "ffn_up_exps": "model.layers.{}.mlp.experts.#.up_proj", "ffn_down_exps": "model.layers.{}.mlp.experts.#.down_proj",
         "ffn_gate_inp_shexp": "model.layers.{}.mlp.shared_expert_gate", "ffn_gate_shexp": "model.layers.{}.mlp.shared_expert.gate_proj",
         "ffn_up_shexp": "model.layers.{}.mlp.shared_expert.up_proj", "ffn_down_shexp": "model.layers.{}.mlp.shared_expert.down_proj"}
MIXTRAL = {**USUAL, "ffn_gate_inp": "model.layers.{}.block_sparse_moe.gate", "ffn_gate_exps": "model.layers.{}.block_sparse_moe.experts.#.w1",
           "ffn_up_exps": "model.layers.{}.block_sparse_moe.experts.#.w3", "ffn_down_exps": "model.layers.{}.block_sparse_moe.experts.#.w2"}
GEMMA2 = {**USUAL, "post_attention_norm": USUAL["ffn_norm"], "ffn_norm": "model.layers.{}.pre_feedforward_layernorm",
          "post_ffw_norm": "model.layers.{}.post_feedforward_layernorm"}
PHI2 = {**USUAL, "output_norm": "model.final_layernorm", "attn_output": "model.layers.{}.self_attn.dense",
        "ffn_up": "model.layers.{}.mlp.fc1", "ffn_down": "model.layers.{}.mlp.fc2"}
STARCODER2 = {**USUAL, "ffn_up": "model.layers.{}.mlp.c_fc", "ffn_down": "model.layers.{}.mlp.c_proj"}
GPT_OSS = {**USUAL, "post_attention_norm": USUAL["ffn_norm"], "ffn_gate_inp": "model.layers.{}.mlp.router"}
GPT2 = {"token_embd": "transformer.wte", "position_embd": "transformer.wpe", "output_norm": "transformer.ln_f", "output": "lm_head",
        "attn_norm": "transformer.h.{}.ln_1", "attn_qkv": "transformer.h.{}.attn.c_attn", "attn_output": "transformer.h.{}.attn.c_proj",
        "ffn_norm": "transformer.h.{}.ln_2", "ffn_up": "transformer.h.{}.mlp.c_fc", "ffn_down": "transformer.h.{}.mlp.c_proj"}
NEOX = {"token_embd": "gpt_neox.embed_in", "output_norm": "gpt_neox.final_layer_norm", "output": "embed_out",
        "attn_norm": "gpt_neox.layers.{}.input_layernorm", "ffn_norm": "gpt_neox.layers.{}.post_attention_layernorm",
        "attn_qkv": "gpt_neox.layers.{}.attention.query_key_value", "attn_output": "gpt_neox.layers.{}.attention.dense",
        "ffn_up": "gpt_neox.layers.{}.mlp.dense_h_to_4h", "ffn_down": "gpt_neox.layers.{}.mlp.dense_4h_to_h"}
FALCON = {"token_embd": "transformer.word_embeddings", "output_norm": "transformer.ln_f", "output": "lm_head",
          "attn_norm": "transformer.h.{}.ln_mlp", "attn_norm_2": "transformer.h.{}.ln_attn",
          "attn_qkv": "transformer.h.{}.self_attention.query_key_value", "attn_output": "transformer.h.{}.self_attention.dense",
          "ffn_up": "transformer.h.{}.mlp.dense_h_to_4h", "ffn_down": "transformer.h.{}.mlp.dense_4h_to_h"}
BLOOM = {**{k: v for k, v in FALCON.items() if k != "attn_norm_2"}, "attn_norm": "transformer.h.{}.input_layernorm", "ffn_norm": "transformer.h.{}.post_attention_layernorm",
         "token_embd_norm": "transformer.word_embeddings_layernorm"}
MPT = {"token_embd": "transformer.wte", "position_embd": "transformer.wpe", "output_norm": "transformer.norm_f", "output": "lm_head",
       "attn_norm": "transformer.blocks.{}.norm_1", "ffn_norm": "transformer.blocks.{}.norm_2",
       "attn_qkv": "transformer.blocks.{}.attn.Wqkv", "attn_output": "transformer.blocks.{}.attn.out_proj",
       "ffn_up": "transformer.blocks.{}.ffn.up_proj", "ffn_down": "transformer.blocks.{}.ffn.down_proj"}
INTERN = {"token_embd": "model.tok_embeddings", "output_norm": "model.norm", "output": "output",
          "attn_norm": "model.layers.{}.attention_norm", "ffn_norm": "model.layers.{}.ffn_norm",
          "attn_output": "model.layers.{}.attention.wo", "ffn_gate": "model.layers.{}.feed_forward.w1",
          "ffn_down": "model.layers.{}.feed_forward.w2", "ffn_up": "model.layers.{}.feed_forward.w3"}
BERT = {"token_embd": "embeddings.word_embeddings", "position_embd": "embeddings.position_embeddings",
        "token_types": "embeddings.token_type_embeddings", "token_embd_norm": "embeddings.LayerNorm",
        "attn_q": "encoder.layer.{}.attention.self.query", "attn_k": "encoder.layer.{}.attention.self.key",
        "attn_v": "encoder.layer.{}.attention.self.value", "attn_output": "encoder.layer.{}.attention.output.dense",
        "attn_output_norm": "encoder.layer.{}.attention.output.LayerNorm", "ffn_up": "encoder.layer.{}.intermediate.dense",
        "ffn_down": "encoder.layer.{}.output.dense", "layer_output_norm": "encoder.layer.{}.output.LayerNorm"}
NOMIC = {"token_embd": BERT["token_embd"], "token_types": BERT["token_types"], "token_embd_norm": "emb_ln",
         "attn_qkv": "encoder.layers.{}.attn.Wqkv", "attn_output": "encoder.layers.{}.attn.out_proj",
         "attn_output_norm": "encoder.layers.{}.norm1", "layer_output_norm": "encoder.layers.{}.norm2",
         "ffn_up": "encoder.layers.{}.mlp.fc11", "ffn_gate": "encoder.layers.{}.mlp.fc12", "ffn_down": "encoder.layers.{}.mlp.fc2"}
OLMO2 = {**USUAL, "post_attention_norm": USUAL["ffn_norm"], "post_ffw_norm": "model.layers.{}.post_feedforward_layernorm"}
EXAONE = {**{k: v for k, v in GPT2.items() if k not in ("position_embd", "attn_qkv")}, "attn_output": "transformer.h.{}.attn.attention.out_proj",
          "ffn_gate": "transformer.h.{}.mlp.c_fc_0", "ffn_up": "transformer.h.{}.mlp.c_fc_1",
          **{f"attn_{x}": f"transformer.h.{{}}.attn.attention.{x}_proj" for x in "qkv"}}
CODESHELL = {k: v for k, v in GPT2.items() if k != "position_embd"}
GRANITE_MOE = {**USUAL, "ffn_gate_inp": "model.layers.{}.block_sparse_moe.router.layer",
               "ffn_down_exps": "model.layers.{}.block_sparse_moe.output_linear",
               "ffn_down_shexp": "model.layers.{}.shared_mlp.output_linear"}

# architecture: class, names, what is done to tensors
ARCHS = {"llama": ("LlamaForCausalLM", USUAL, "halves"), "mixtral": ("MixtralForCausalLM", MIXTRAL, "halves"),
         "qwen2": ("Qwen2ForCausalLM", USUAL, ""), "qwen2moe": ("Qwen2MoeForCausalLM", USUAL, ""), "qwen3": ("Qwen3ForCausalLM", USUAL, ""),
         "qwen3moe": ("Qwen3MoeForCausalLM", USUAL, ""), "gemma": ("GemmaForCausalLM", USUAL, "less one"),
         "gemma2": ("Gemma2ForCausalLM", GEMMA2, "less one"), "gemma3": ("Gemma3ForCausalLM", GEMMA2, "less one"),
         "phi2": ("PhiForCausalLM", PHI2, ""), "phi3": ("Phi3ForCausalLM", USUAL, "phi3"), "gpt2": ("GPT2LMHeadModel", GPT2, "turned"),
         "gptneox": ("GPTNeoXForCausalLM", NEOX, "grouped"), "starcoder": ("GPTBigCodeForCausalLM", GPT2, "grouped"),
         "starcoder2": ("Starcoder2ForCausalLM", STARCODER2, ""), "falcon": ("FalconForCausalLM", FALCON, "grouped"),
         "bloom": ("BloomForCausalLM", BLOOM, "grouped"), "mpt": ("MPTForCausalLM", MPT, ""), "olmo": ("OlmoForCausalLM", USUAL, "halves"),
         "olmo2": ("Olmo2ForCausalLM", OLMO2, ""), "stablelm": ("StableLmForCausalLM", USUAL, "head norms"),
         "granite": ("GraniteForCausalLM", USUAL, "halves"), "smollm3": ("SmolLM3ForCausalLM", USUAL, "halves"),
         "internlm2": ("InternLM2ForCausalLM", INTERN, "halves wqkv"), "gpt-oss": ("GptOssForCausalLM", GPT_OSS, "pairs"),
         "xverse": ("XverseForCausalLM", USUAL, "halves"), "orion": ("OrionForCausalLM", USUAL, ""),
         "arcee": ("ArceeForCausalLM", USUAL, "halves"), "seed_oss": ("SeedOssForCausalLM", GPT_OSS, ""),
         "nemotron": ("NemotronForCausalLM", USUAL, "less one"), "command-r": ("CohereForCausalLM", USUAL, ""),
         "exaone": ("ExaoneForCausalLM", EXAONE, ""), "codeshell": ("CodeShellForCausalLM", CODESHELL, ""),
         "ernie4_5": ("Ernie4_5_ForCausalLM", USUAL, "one network"), "maincoder": ("MaincoderForCausalLM", USUAL, ""),
         "pangu-embedded": ("PanguEmbeddedForCausalLM", USUAL, ""), "phimoe": ("PhiMoEForCausalLM", MIXTRAL, ""),
         "granitemoe": ("GraniteMoeForCausalLM", GRANITE_MOE, "halves one network"), "cohere2": ("Cohere2ForCausalLM", USUAL, ""),
         "exaone4": ("Exaone4ForCausalLM", OLMO2, ""), "olmoe": ("OlmoeForCausalLM", USUAL, ""),
         "bert": ("BertModel", BERT, ""), "nomic-bert": ("NomicBertModel", NOMIC, "")}


def config_of(keys, arch, name):
    get = lambda key, otherwise=0: keys.get(f"{name}.{key}", otherwise)
    heads, kv, width = get("attention.head_count"), get("attention.head_count_kv"), get("embedding_length")
    eps = get("attention.layer_norm_rms_epsilon") or get("attention.layer_norm_epsilon")
    head = get("attention.key_length") or width // heads
    config = {"architectures": [ARCHS[arch][0]], "hidden_size": width, "num_hidden_layers": get("block_count"),
              "num_attention_heads": heads, "num_key_value_heads": kv, "intermediate_size": get("feed_forward_length"),
              "max_position_embeddings": get("context_length"), "rms_norm_eps": eps, "layer_norm_eps": eps,
              "rope_theta": get("rope.freq_base", 10000.0), "partial_rotary_factor": get("rope.dimension_count", head) / head}
    if get("expert_count"):
        config |= {"num_local_experts" if name in ("llama", "gpt-oss", "phimoe", "granitemoe") else "num_experts": get("expert_count"),
                   "num_experts_per_tok": get("expert_used_count")}
        if name.startswith("qwen"):
            config |= {"moe_intermediate_size": get("expert_feed_forward_length")}
        if get("expert_shared_feed_forward_length"):
            config |= {"shared_expert_intermediate_size": get("expert_shared_feed_forward_length")}
    if arch not in ("bert", "falcon", "gptneox"):
        config["head_dim"] = head
    if arch in ("gpt2", "starcoder", "nomic-bert"):
        config = {"architectures": config["architectures"], "n_embd": width, "n_layer": get("block_count"), "n_head": heads,
                  "n_positions": get("context_length"), "n_inner": get("feed_forward_length"), "layer_norm_epsilon": eps,
                  "multi_query": kv == 1 and heads > 1, "activation_function": "gelu_pytorch_tanh"}
        if arch == "nomic-bert":
            config |= {"rotary_emb_fraction": 1.0, "rotary_emb_base": get("rope.freq_base", 10000.0), "activation_function": "swiglu"}
    if arch == "codeshell":
        config = {"architectures": config["architectures"], "n_embd": width, "n_layer": get("block_count"), "n_head": heads,
                  "num_query_groups": kv, "n_positions": get("context_length"), "layer_norm_epsilon": eps,
                  "activation_function": "gelu_pytorch_tanh"}
    if arch == "exaone":
        config |= {"num_layers": get("block_count"), "layer_norm_epsilon": eps, "activation_function": "silu"}
        del config["num_hidden_layers"], config["rms_norm_eps"]
    if arch == "mpt":
        config = {"architectures": config["architectures"], "d_model": width, "n_layers": get("block_count"), "n_heads": heads,
                  "max_seq_len": get("context_length"), "expansion_ratio": get("feed_forward_length") / width,
                  "attn_config": {"alibi": get("attention.max_alibi_bias") > 0, "alibi_bias_max": get("attention.max_alibi_bias"),
                                  "clip_qkv": get("attention.clamp_kqv")}}
    if arch == "falcon":
        config |= {"new_decoder_architecture": True, "num_kv_heads": kv, "multi_query": True, "layer_norm_epsilon": eps,
                   "ffn_hidden_size": get("feed_forward_length"), "activation": "gelu"}
    if arch == "gptneox":
        config |= {"rotary_pct": get("rope.dimension_count") / head, "rotary_emb_base": get("rope.freq_base"),
                   "use_parallel_residual": get("use_parallel_residual"), "hidden_act": "gelu"}
        del config["partial_rotary_factor"], config["rope_theta"]
    if arch in ("granite", "granitemoe"):
        config |= {"attention_multiplier": get("attention.scale"), "embedding_multiplier": get("embedding_scale"),
                   "residual_multiplier": get("residual_scale"), "logits_scaling": get("logit_scale")}
    if arch in ("gemma2", "gemma3", "gpt-oss", "cohere2", "exaone4"):
        config |= {"sliding_window": get("attention.sliding_window")}
    if arch in ("gemma2", "gemma3"):
        config |= {"query_pre_attn_scalar": 1 / get("attention.scale") ** 2 if get("attention.scale") else head,
                   "attn_logit_softcapping": get("attn_logit_softcapping") or None,
                   "final_logit_softcapping": get("final_logit_softcapping") or None,
                   "rope_local_base_freq": get("rope.freq_base_swa", 10000.0)}
    if arch == "nemotron":
        config |= {"norm_eps": eps}
    if arch in ("command-r", "cohere2"):
        config |= {"logit_scale": get("logit_scale")}
    if arch == "olmo":
        config |= {"clip_qkv": get("attention.clamp_kqv")}
    return config


def folder_of(keys, tensors, arch):
    """config and tensors as the makers of this architecture would have written them."""
    name = keys["general.architecture"]
    config, names, does = config_of(keys, arch, name), ARCHS[arch][1], ARCHS[arch][2]
    heads, kv = keys[f"{name}.attention.head_count"], keys[f"{name}.attention.head_count_kv"]
    left, out = scaled(tensors, name, arch), {}
    if "rope_freqs.weight" in left:  # a list of factors can only be long-rope
        factors = list(left.pop("rope_freqs.weight")[1])
        config["rope_scaling"] = {"type": "longrope", "long_factor": factors, "short_factor": factors,
                                  "original_max_position_embeddings": config["max_position_embeddings"]}
    if "rope_factors_long.weight" in left:
        config["rope_scaling"] = {"type": "longrope", "long_factor": list(left.pop("rope_factors_long.weight")[1]),
                                  "short_factor": list(left.pop("rope_factors_short.weight")[1]),
                                  "original_max_position_embeddings": config["max_position_embeddings"]}
    for full, tensor in left.items():
        layer = full.split(".")[1] if full.startswith("blk.") else ""
        part, _, ending = full.removeprefix(f"blk.{layer}.").rpartition(".")
        if part == "cls.output" or (arch == "mpt" and part == "attn_k_norm"):
            continue  # the zoo has it, nobody uses it
        there = names.get(part, "").format(layer)
        if "halves" in does and part in ("attn_q", "attn_k"):
            tensor = halves(tensor, heads if part == "attn_q" else kv)
        if "less one" in does and part.endswith("norm") and ending == "weight":
            tensor = tensor[0], array.array("f", (x - 1 for x in tensor[1]))
        if "turned" in does and ending == "weight" and part in ("attn_qkv", "attn_output", "ffn_up", "ffn_down"):
            tensor = turned(tensor)
        if "grouped" in does and part == "attn_qkv":
            head = tensor[0][0] // (heads + 2 * kv)
            tensor = grouped(*cut(tensor, heads * head, kv * head, kv * head), heads, kv)
        if "wqkv" in does and part in ("attn_q", "attn_k", "attn_v"):
            out[f"hold.{layer}.{part}.{ending}"] = tensor
            continue
        if "phi3" in does and part in ("attn_q", "attn_k", "attn_v") and f"blk.{layer}.attn_q.{ending}" in left:
            out[f"hold.{layer}.{part}.{ending}"] = tensor
            continue
        if "phi3" in does and part == "ffn_up":
            there = f"model.layers.{layer}.mlp.gate_up_proj"
        if "head norms" in does and part in ("attn_q_norm", "attn_k_norm"):
            for i, row in enumerate(row_list(tensor)):
                out[f"model.layers.{layer}.self_attn.{part[5]}_layernorm.norms.{i}.weight"] = [len(row)], row
            continue
        if "pairs" in does and "exps" in part or part == "attn_sinks":
            out[f"hold.{layer}.{part}.{ending}"] = tensor
            continue
        if "one network" in does and part.startswith(("ffn_gate", "ffn_up")) and part != "ffn_gate_inp":
            out[f"hold.{layer}.{part}.{ending}"] = tensor
            continue
        if "#" in there:
            for i, each in enumerate(row_list(tensor)):
                out[f"{there}.{ending}".replace("#", str(i))] = tensor[0][1:], each
            continue
        check(there, f"{arch}: this test knows no name for {full}")
        out[f"{there}.{ending}"] = tensor
    held = {k: out.pop(k) for k in list(out) if k.startswith("hold.")}
    for layer in range(keys[f"{name}.block_count"]):
        hold = lambda part: held.get(f"hold.{layer}.{part}")
        for ending in ("weight", "bias"):
            q, k, v = (hold(f"attn_{x}.{ending}") for x in "qkv")
            if q and "wqkv" in does:
                out[f"model.layers.{layer}.attention.wqkv.{ending}"] = grouped(q, k, v, heads, kv)
            elif q:
                out[f"model.layers.{layer}.self_attn.qkv_proj.{ending}"] = from_rows(row_list(q) + row_list(k) + row_list(v), q[0][1:])
        for kind, there in ("", "mlp.up_gate_proj"), ("_exps", "block_sparse_moe.input_linear"), ("_shexp", "shared_mlp.input_linear"):
            gate, up = hold(f"ffn_gate{kind}.weight"), hold(f"ffn_up{kind}.weight")
            if gate and "one network" in does:
                out[f"model.layers.{layer}.{there}.weight"] = behind(gate, up)
        if "pairs" in does:
            mlp = f"model.layers.{layer}.mlp.experts."
            out[f"model.layers.{layer}.self_attn.sinks"] = hold("attn_sinks.weight")
            out[mlp + "gate_up_proj"] = interleaved(turned(hold("ffn_gate_exps.weight")), turned(hold("ffn_up_exps.weight")))
            out[mlp + "gate_up_proj_bias"] = interleaved(hold("ffn_gate_exps.bias"), hold("ffn_up_exps.bias"))
            out[mlp + "down_proj"] = turned(hold("ffn_down_exps.weight"))
            out[mlp + "down_proj_bias"] = hold("ffn_down_exps.bias")
    return config, out


def logits(model, out):
    code, said = quern("eval", "-m", model, "--ids", " ".join(map(str, IDS)), "--logits", out, "-t", "1")
    check(code == 0, f"{model}: {said}")
    numbers = array.array("f")
    if code == 0:
        with open(out, "rb") as file:
            numbers.frombytes(file.read())
    return numbers


def agree(what, got, want, bound):
    error = sum((a - b) ** 2 for a, b in zip(got, want)) / sum(b * b for b in want) if len(got) == len(want) and got else math.inf
    check(error < bound, f"{what}: NMSE {error:.3g} of {len(got)} numbers for {len(want)}")


def converted(folder, what, config, tensors, want, bound, **more):
    write_folder(os.path.join(folder, what), config, tensors, **more)
    code, said = quern("convert", os.path.join(folder, what), os.path.join(folder, what + ".gguf"), "-t", "1")
    check(code == 0, f"{what}: {said}")
    if code == 0:
        agree(what, logits(os.path.join(folder, what + ".gguf"), os.path.join(folder, "got.f32")), want, bound)


def zoo(folder):
    for file in sorted(os.listdir(os.path.join(DATA, "zoo"))):
        if not file.endswith(".gguf"):
            continue
        keys, tensors = read_gguf(os.path.join(DATA, "zoo", file))
        arch = keys["general.architecture"]
        arch = "mixtral" if file == "llama-moe.gguf" else arch
        check(arch in ARCHS, f"{file}: no table for {arch}")
        want = array.array("f")
        with open(os.path.join(DATA, "zoo", file[:-5] + ".f32"), "rb") as numbers:
            want.frombytes(numbers.read())
        config, there = folder_of(keys, tensors, arch)
        converted(folder, file[:-5], config, there, want, 1e-6)


# ---- Models of this file's own: (architecture, heads, heads of keys, part of a head that turns, other keys)
MADE = [("llama", 4, 2, 1, {}), ("falcon", 4, 2, 1, {}), ("falcon", 4, 1, 1, {}), ("gptneox", 4, 4, 0.5, {"use_parallel_residual": True}),
        ("internlm2", 4, 2, 1, {}), ("starcoder", 4, 1, 1, {}), ("bloom", 4, 4, 1, {}), ("stablelm", 4, 2, 0.5, {}), ("phi3", 4, 2, 1, {}),
        ("phi2", 4, 4, 0.5, {}), ("olmo2", 4, 4, 1, {}), ("gemma2", 4, 2, 1, {"attention.sliding_window": 8, "attention.scale": 0.25,
         "attn_logit_softcapping": 30.0, "final_logit_softcapping": 20.0}), ("gemma3", 4, 2, 1, {"attention.sliding_window": 8,
         "attention.scale": 0.25, "rope.freq_base": 1e6, "rope.freq_base_swa": 10000.0}),
        ("gpt-oss", 4, 2, 1, {"attention.sliding_window": 8, "expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 64}),
        ("xverse", 4, 4, 1, {}), ("orion", 4, 2, 1, {}), ("arcee", 4, 2, 1, {}), ("seed_oss", 4, 2, 1, {}), ("nemotron", 4, 2, 0.5, {}),
        ("command-r", 4, 2, 1, {"logit_scale": 0.25}),
        ("exaone", 4, 2, 1, {}), ("codeshell", 4, 2, 1, {}), ("ernie4_5", 4, 2, 1, {}), ("maincoder", 4, 2, 1, {}),
        ("pangu-embedded", 4, 2, 1, {}), ("phimoe", 4, 2, 1, {"expert_count": 4, "expert_used_count": 2}),
        ("granitemoe", 4, 2, 1, {"expert_count": 4, "expert_used_count": 2, "attention.scale": 0.2, "embedding_scale": 3.0,
         "residual_scale": 0.5, "logit_scale": 4.0, "expert_shared_feed_forward_length": 32}),
        ("cohere2", 4, 2, 1, {"logit_scale": 0.25, "attention.sliding_window": 8}),
        ("exaone4", 4, 2, 1, {"attention.sliding_window": 8}), ("olmoe", 4, 4, 1, {"expert_count": 4, "expert_used_count": 2}),
        ("bert", 4, 4, 1, {}), ("nomic-bert", 4, 4, 1, {})]


def made_shapes(arch, heads, kv, layers, experts):
    wide, ff, head = 64, 64 if experts else 96, 16
    one = {"attn_output.weight": (wide, heads * head), "attn_norm.weight": (wide,), "ffn_norm.weight": (wide,)}
    names, does = ARCHS[arch][1], ARCHS[arch][2]
    if "attn_qkv" in names:
        one["attn_qkv.weight"] = ((heads + 2 * kv) * head, wide)
    else:
        one |= {"attn_q.weight": (heads * head, wide), "attn_k.weight": (kv * head, wide), "attn_v.weight": (kv * head, wide)}
    if arch in ("gptneox", "starcoder", "bloom", "phi2", "internlm2", "llama", "gpt-oss", "codeshell", "pangu-embedded", "phimoe"):
        one |= {k.replace("weight", "bias"): (v[0],) for k, v in one.items() if "norm" not in k and (arch != "internlm2" or "output" not in k)}
    if experts:
        one |= {"ffn_gate_inp.weight": (experts, wide), "ffn_gate_inp.bias": (experts,), "attn_sinks.weight": (heads,),
                "ffn_gate_exps.weight": (experts, ff, wide), "ffn_up_exps.weight": (experts, ff, wide),
                "ffn_down_exps.weight": (experts, wide, ff), "ffn_gate_exps.bias": (experts, ff), "ffn_up_exps.bias": (experts, ff),
                "ffn_down_exps.bias": (experts, wide)}
        if arch != "gpt-oss":
            one = {k: v for k, v in one.items() if "sinks" not in k and (not k.startswith("ffn_") or not k.endswith("bias"))}
        if arch == "granitemoe":
            one |= {"ffn_gate_shexp.weight": (32, wide), "ffn_up_shexp.weight": (32, wide), "ffn_down_shexp.weight": (wide, 32)}
    else:
        one |= {"ffn_up.weight": (2 * ff if does == "phi3" else ff, wide), "ffn_down.weight": (wide, ff)}
        if "ffn_gate" in names and does != "phi3" and arch not in ("phi2", "bert", "arcee", "nemotron"):
            one["ffn_gate.weight"] = (ff, wide)
    for norm in ("post_attention_norm", "post_ffw_norm", "attn_output_norm", "layer_output_norm", "attn_norm_2"):
        if norm in names:
            one[norm + ".weight"] = (wide,)
    if arch in ("bert", "nomic-bert", "olmo2", "gpt-oss", "falcon", "phi2", "seed_oss", "command-r", "cohere2", "exaone4"):
        del one["ffn_norm.weight"]
    if arch in ("bert", "nomic-bert", "olmo2", "exaone4"):
        del one["attn_norm.weight"]
    if arch in ("gemma3", "olmo2", "stablelm", "maincoder", "exaone4", "olmoe"):
        for x, n in ("q", heads), ("k", kv):
            one[f"attn_{x}_norm.weight"] = (n, head) if arch == "stablelm" else (n * head,) if arch in ("olmo2", "olmoe") else (head,)
    layered = arch in ("bert", "nomic-bert", "bloom", "falcon", "gptneox", "phi2", "stablelm", "starcoder", "orion", "nemotron", "codeshell",
                       "phimoe")
    top = {"token_embd.weight": (128, wide), "output_norm.weight": (wide,), "output.weight": (128, wide)}
    for norm in [k for k in one if layered and "norm" in k and k[5:7] not in ("q_", "k_")]:
        one[norm.replace("weight", "bias")] = (wide,)
    if "token_embd_norm" in names:
        top |= {"token_embd_norm.weight": (wide,), "token_embd_norm.bias": (wide,)}
    if arch in ("bert", "nomic-bert"):
        top = {k: v for k, v in top.items() if "output" not in k} | {"token_types.weight": (2, wide)}
    elif layered:
        top["output_norm.bias"] = (wide,)
    if "gemma" in arch:
        del top["output.weight"]
    if arch in ("bert", "starcoder"):
        top["position_embd.weight"] = (64, wide)
    return {**top, **{f"blk.{i}.{k}": v for i in range(layers) for k, v in one.items()}}


def made(folder):
    for number, (arch, heads, kv, part, more) in enumerate(MADE):
        random.seed(number)
        layers = 7 if arch == "gemma3" else 2
        keys = {"block_count": layers, "context_length": 64, "embedding_length": 64, "feed_forward_length": 64 if "expert_count" in more else 96,
                "attention.head_count": heads, "attention.head_count_kv": kv, "attention.layer_norm_rms_epsilon": 1e-5,
                "attention.layer_norm_epsilon": 1e-5, "rope.dimension_count": int(16 * part), "rope.freq_base": 10000.0, **more}
        if arch in ("bloom", "codeshell"):
            keys["feed_forward_length"] = 256
        if arch in ("gemma2", "gemma3", "llama", "gpt-oss", "olmo2"):
            keys |= {"attention.key_length": 16, "attention.value_length": 16}
        keys = {"general.architecture": arch, **{f"{arch}.{k}": v for k, v in keys.items()}}
        tensors = {}
        for name, shape in made_shapes(arch, heads, kv, layers, more.get("expert_count", 0)).items():
            if arch in ("bloom", "codeshell") and "ffn_" in name and "norm" not in name:
                shape = tuple(256 if x == 96 else x for x in shape)
            mean, spread = (1, 0.2) if "norm" in name and name.endswith("weight") else (0, 0.3)
            tensors[name] = list(shape), array.array("f", (random.gauss(mean, spread) for _ in range(math.prod(shape))))
        what = f"{arch}-{heads}-{kv}"
        direct = os.path.join(folder, what + "-direct.gguf")
        write_gguf(direct, keys, tensors)
        want = logits(direct, os.path.join(folder, "want.f32"))
        config, there = folder_of(keys, tensors, arch)
        converted(folder, what, config, there, want, 1e-10, words="bert" in arch)
        if arch == "gpt-oss":
            blocks(folder, config, there)
        if arch == "bert":
            encoder_bench(direct)


def encoder_bench(model):
    """An encoder reads, and makes nothing."""
    done = subprocess.run([QUERN, "bench", "-m", model, "-p", "16,48", "-r", "1", "-t", "1", "-o", "csv"], capture_output=True, timeout=300)
    rows = [line.split(",")[6] for line in done.stdout.decode().split()[1:]]
    check(done.returncode == 0 and rows == ["pp16", "pp48"], f"bench of an encoder: exit {done.returncode}, {rows}")
    code, said = quern("bench", "-m", model, "-p", "0", "-n", "8")
    check(code == 2 and "makes no tokens" in said, f"bench tg of an encoder: exit {code}, {said}")
    code, said = quern("bench", "-m", model, "-p", "65")
    check(code == 1 and "at most 64" in said, f"bench of an encoder, too long: exit {code}, {said}")
    code, said = quern("bench", "-m", model, "-p", "16", "-d", "8")
    check(code == 2 and "no depth" in said, f"bench of an encoder at a depth: exit {code}, {said}")
    code, said = quern("bench", "-m", model, "-p", "0", "-n", "0")
    check(code == 2 and "nothing to measure" in said, f"bench of nothing: exit {code}, {said}")


def blocks(folder, config, there):
    """Experts in MXFP4: the same numbers as floats and as blocks with scales beside them."""
    values = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]
    plain, packed, raw = {}, {}, {}
    for name, (shape, numbers) in there.items():
        if not name.endswith(("gate_up_proj", "experts.down_proj")):
            plain[name] = packed[name] = shape, numbers
            continue
        experts, inner, outer = shape
        nibbles = [random.randrange(16) for _ in numbers]
        scales = [random.randrange(122, 126) for _ in range(len(numbers) // 32)]
        floats = array.array("f", (values[x] * 2.0 ** (scales[i // 32] - 127) for i, x in enumerate(nibbles)))
        plain[name] = turned(([experts, outer, inner], floats))
        raw[name + "_blocks"] = [experts, outer, inner // 32, 16], [a | b << 4 for a, b in zip(nibbles[::2], nibbles[1::2])]
        raw[name + "_scales"] = [experts, outer, inner // 32], scales
    write_folder(os.path.join(folder, "floats"), config, plain)
    quern("convert", os.path.join(folder, "floats"), os.path.join(folder, "floats.gguf"))
    want = logits(os.path.join(folder, "floats.gguf"), os.path.join(folder, "want.f32"))
    converted(folder, "mxfp4", config, packed, want, 2e-3, raw=raw)  # activations are rounded to 8 bits before such blocks
    write_folder(os.path.join(folder, "mxfp4"), config, packed, raw={k: v for k, v in raw.items() if "layers.0.mlp.experts.down_proj_s" not in k})
    refused(folder, "mxfp4", "has no scales")


def refused(folder, what, sentence):
    out = os.path.join(folder, "refused.gguf")
    code, said = quern("convert", os.path.join(folder, what), out)
    check(code == 1 and sentence in said, f"{what}: exit {code}, {said}")
    check(not os.path.exists(out), f"{what}: something was left behind")


def bad_input(folder):
    keys, tensors = read_gguf(os.path.join(DATA, "zoo", "gptneox-dense.gguf"))
    config, there = folder_of(keys, tensors, "gptneox")
    qkv = "gpt_neox.layers.0.attention.query_key_value.weight"
    shape, numbers = there[qkv]
    for what, new_config, new_tensors, sentence in (
            ("heads", {"num_attention_heads": 0}, {}, "cannot be"), ("activation", {"hidden_act": "tanh"}, {}, "hidden_act"),
            ("groups", {}, {qkv: ([shape[0] - 1, shape[1]], numbers[:-shape[1]])}, "groups of heads"),
            ("unknown", {}, {"gpt_neox.layers.0.attention.other.weight": ([1], numbers[:1])}, "attention.other"),
            ("class", {"architectures": ["NobodysModel"]}, {}, "is none of the"),
            ("scaling", {"rope_scaling": {"type": "odd", "factor": 2}}, {}, "unknown way 'odd'")):
        write_folder(os.path.join(folder, what), {**config, **new_config}, {**there, **new_tensors})
        refused(folder, what, sentence)
    keys, tensors = read_gguf(os.path.join(DATA, "zoo", "falcon-dense.gguf"))
    config, there = folder_of(keys, tensors, "falcon")
    write_folder(os.path.join(folder, "alibi"), {**config, "alibi": True}, there)
    refused(folder, "alibi", "alibi")
    both = {**there, "word_embeddings.weight": there["transformer.word_embeddings.weight"]}
    write_folder(os.path.join(folder, "twice"), config, both)
    refused(folder, "twice", "two tensors")
    config, there = folder_of(*read_gguf(os.path.join(DATA, "zoo", "qwen2-dense.gguf")), "qwen2")
    norm = there["model.norm.weight"]
    wide = {"architectures": ["MixtralForCausalLM"], "num_local_experts": 1024}
    for what, new_config, new_tensors, sentence in (
            ("vocabulary", {"vocab_size": 1 << 24}, {}, "vocab_size is 16777216, and files of this size hold no more"),
            ("experts", wide, {f"model.layers.{i}.block_sparse_moe.experts.0.w1.weight": ([1, 1], norm[1][:1]) for i in range(99)},
             "too few tensors for the other 1023 experts"),
            ("nothing", {"architectures": ["LlamaForCausalLM"]}, {"model.layers.0.self_attn.q_proj.weight": ([0, 64], norm[1][:0])}, "with something in it")):
        write_folder(os.path.join(folder, what), {**config, **new_config}, {**there, **new_tensors})
        refused(folder, what, sentence)
    place = os.path.join(folder, "number")  # of a token, where nothing else has one near it
    write_folder(place, config, there)
    write_words(place, {"model": {"type": "BPE", "vocab": {"a": 0, "z": 16000000}, "merges": ["a a"]}})
    refused(folder, "number", "token 'z' has the number 16000000, and files of this size hold no more")


def many(folder):
    """Four times as many tensors take about four times as long; what grows with the square takes sixteen times."""
    config, there = folder_of(*read_gguf(os.path.join(DATA, "zoo", "qwen2-dense.gguf")), "qwen2")
    place, took = os.path.join(folder, "many"), []
    for count in (10000, 40000):
        more = {f"model.layers.{i}.input_layernorm.weight": ([1], array.array("f", [1])) for i in range(count)}
        write_folder(place, config, {"model.embed_tokens.weight": there["model.embed_tokens.weight"], **more})
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        code, said = quern("convert", place, place + ".gguf", "-t", "1")
        took.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
        check(code == 0, f"{count} tensors: {said}")
    check(took[1] < 8 * took[0] + 0.5, f"many tensors: {took[0]:.2f} s, then {took[1]:.2f} s")


def tokens_are(what, place, text, want):
    code, said = quern("convert", place, place + ".gguf")
    check(code == 0, f"{what}: {said}")
    done = subprocess.run([QUERN, "tokenize", "-m", place + ".gguf", "-p", text, "--ids"], capture_output=True, timeout=300)
    got = [int(x) for x in done.stdout.decode().replace(",", " ").replace("[", " ").replace("]", " ").split()]
    check(got == want, f"{what}: {got}, not {want}; {done.stderr.decode().strip()}")


def unigram(folder):
    """A tokenizer.json of scores: the best sum wins, bytes for what is unknown, and refusals."""
    keys, tensors = read_gguf(os.path.join(DATA, "zoo", "qwen2-dense.gguf"))
    config, there = folder_of(keys, tensors, "qwen2")
    pieces = [["<unk>", 0.0], ["</s>", 0.0], ["\u2581", -2.0], ["a", -2.0], ["b", -2.5], ["ab", -3.0], ["\u2581a", -3.5]]
    some_bytes = [[f"<0x{b:02X}>", -20.0] for b in range(256)]
    metaspace = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Metaspace", "add_prefix_space": True}]}
    ending = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "</s>"}}]}
    for what, fallback, more, text, want in (
            ("plain", False, {}, "abba", [5, 4, 3]), ("bytes", True, {}, "a\u00e9", [3, 7 + 0xC3, 7 + 0xA9]),
            ("unknown", False, {}, "axxb", [3, 0, 4]),
            ("map", False, {"normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap()}}, "AB", [3, 0]),
            ("spaces", False, {"pre_tokenizer": metaspace}, "  a   b ", [6, 2, 4]), ("ends", False, {"post_processor": ending}, "ab", [5, 1])):
        place = os.path.join(folder, "unigram-" + what)
        write_folder(place, {**config, "vocab_size": 7}, there)
        words = {"model": {"type": "Unigram", "unk_id": 0, "vocab": pieces + some_bytes * fallback, "byte_fallback": fallback},
                 "added_tokens": [{"id": 1, "content": "</s>", "special": True}], **more}
        write_words(place, words, {"eos_token": "</s>"})
        tokens_are(f"unigram {what}", place, text, want)
    for what, more, sentence in (("base64", {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "A!"}}, "not base64"),
                                 ("lower", {"normalizer": {"type": "Lowercase"}}, "'Lowercase'"),
                                 ("nobody", {"model": {"type": "Unigram", "vocab": pieces}}, "unk_id"),
                                 ("scores", {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", {"b": 1}]]}}, "no score"),
                                 ("empty", {"model": {"type": "Unigram", "unk_id": 0, "vocab": []}}, "no vocabulary")):
        write_folder(os.path.join(folder, what), config, there)
        write_words(os.path.join(folder, what), {"model": {"type": "Unigram", "unk_id": 0, "vocab": pieces}, **more})
        refused(folder, what, sentence)


def steps(folder):
    """What tokenizer.json does besides merging: what GGUF can say comes over, what it cannot is refused and not passed over."""
    config, there = folder_of(*read_gguf(os.path.join(DATA, "zoo", "qwen2-dense.gguf")), "qwen2")
    bpe = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "\u0120": 3, "<s>": 4, "</s>": 5}, "merges": ["a b"]}
    pieces = ["<unk>", "<s>", "</s>", "\u2581", "a", "b", "\u2581a", "ab", "\u2581ab"]
    spm = {"type": "BPE", "vocab": {p: i for i, p in enumerate(pieces)}, "merges": ["\u2581 a", "a b", "\u2581a b"], "byte_fallback": True}
    words = {"type": "WordPiece", "vocab": {"[CLS]": 0, "[SEP]": 1, "##s": 2, "cat": 3, "Cat": 5, "[UNK]": 4}}
    score = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]}
    scored = [("<unk>", 0, 2), ("<s>", 0, 3), ("</s>", 0, 3), ("\u2581", -2, 1), ("a", -3, 1), ("b", -3, 1), ("ab", -1, 1), ("\u2581a", -1.5, 1)]
    added = [{"id": 4, "content": "<s>", "special": True}, {"id": 5, "content": "</s>", "special": True}]
    special = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    parts = [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "</s>"}}]
    byte_level, split = {"type": "ByteLevel"}, {"type": "Split", "pattern": {"Regex": "\\p{N}"}, "behavior": "Isolated"}
    prepend, replace = {"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    bert = {"type": "BertNormalizer", "lowercase": True}

    def write(what, model, more):
        write_folder(os.path.join(folder, what), config, there)
        write_words(os.path.join(folder, what), model if isinstance(model, bytes) else {"model": model, **more}, special)

    for what, model, more, text, want in (
            ("nothing-around", bpe, {"pre_tokenizer": byte_level}, "ab", [2]),
            ("both-ends", bpe, {"pre_tokenizer": byte_level, "post_processor": {"type": "TemplateProcessing", "single": parts}, "added_tokens": added},
             "ab", [4, 2, 5]),
            ("nfc", bpe, {"pre_tokenizer": byte_level, "normalizer": {"type": "NFC"}}, "ab", [2]),
            ("space-in-front", spm, {"normalizer": {"type": "Sequence", "normalizers": [prepend, replace]}}, "ab", [8]),
            ("no-space", spm, {"normalizer": replace}, "ab a", [7, 6]),
            ("model", sentencepiece(scored, 2, prefix=1, single=0), {}, "ab  a", [1, 3, 6, 3, 7]),
            ("model-no-space", sentencepiece(scored, 2, prefix=0, single=0), {}, "ab  a", [1, 6, 3, 7]),
            ("model-spaces-in-one", sentencepiece(scored + [("\u2581\u2581", 0, 4)], 2, prefix=0, single=0), {}, "ab  a", [1, 6, 8, 4]),
            ("model-scores", sentencepiece(scored, 1), {}, " ab  a ", [3, 6, 7]),
            ("cls-elsewhere", words, {"normalizer": bert, "pre_tokenizer": {"type": "BertPreTokenizer"}}, "Cats", [0, 3, 2, 1]),
            ("capitals", words, {"normalizer": {**bert, "lowercase": False}}, "Cats", [0, 5, 2, 1])):
        write(what, model, more)
        tokens_are(what, os.path.join(folder, what), text, want)
    for what, model, more, sentence in (
            ("bpe-lower", bpe, {"pre_tokenizer": byte_level, "normalizer": {"type": "Lowercase"}}, "'Lowercase'"),
            ("bpe-strip", bpe, {"pre_tokenizer": byte_level, "normalizer": {"type": "Sequence", "normalizers": [{"type": "Strip"}]}}, "'Strip'"),
            ("bpe-space", bpe, {"pre_tokenizer": {**byte_level, "add_prefix_space": True}}, "with a space in front"),
            ("bpe-whole", bpe, {"pre_tokenizer": {**byte_level, "use_regex": False}}, "does not cut"),
            ("bpe-again", bpe, {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]}}, "cuts again"),
            ("bpe-removed", bpe, {"pre_tokenizer": {**split, "behavior": "Removed"}}, "in another way"),
            ("bpe-digits", bpe, {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits"}, byte_level]}}, "Digits:together"),
            ("bpe-suffix", {**bpe, "end_of_word_suffix": "</w>"}, {"pre_tokenizer": byte_level}, "end_of_word_suffix"),
            ("bpe-roberta", bpe, {"pre_tokenizer": byte_level, "post_processor": {"type": "RobertaProcessing"}}, "'RobertaProcessing'"),
            ("spm-lower", spm, {"normalizer": {"type": "Lowercase"}}, "'Lowercase'"),
            ("model-spaces", sentencepiece(scored, 2, single=1), {}, "one space of several"),
            ("model-map", sentencepiece(scored, 2, single=0, charsmap=b"x"), {}, "replaces characters"),
            ("model-words", sentencepiece(scored, 3), {}, "whole words"), ("words-accents", words, {"normalizer": {**bert, "strip_accents": False}}, "strip_accents"),
            ("words-lower", words, {"normalizer": {"type": "Lowercase"}}, "'Lowercase'"),
            ("words-cut", words, {"normalizer": bert, "pre_tokenizer": {"type": "WhitespaceSplit"}}, "'WhitespaceSplit'"),
            ("score-strip", score, {"normalizer": {"type": "Strip"}}, "'Strip'"),
            ("score-mark", score, {"pre_tokenizer": {"type": "Metaspace", "replacement": "_"}}, "'Metaspace'"),
            ("score-replace", score, {"normalizer": {**replace, "content": "x"}}, "'Replace'")):
        write(what, model, more)
        refused(folder, what, sentence)


with tempfile.TemporaryDirectory() as work:
    for test in (zoo, made, bad_input, many, unigram, steps):
        test(work)
print(f"{passed} passed, {failures} failed")
sys.exit(failures != 0)
