"""Writes variants.json: what the tokenizers library makes of difficult texts.

    pip install tokenizers==0.23.3
    python variants.py ../../bundled/judge-moe/tokenizer.json [texts-per-variant [seed]] > variants.json

Each variant is the judge's tokenizer.json with some parts replaced. With thousands of texts, point
WEFT_TOKENIZER_VARIANTS at the output and run the tests.
"""

import json
import random
import sys

from tokenizers import Tokenizer

VOCAB = 2045  # of the judge, without added tokens


def added(id, content, **flags):
    token = {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": False}
    return token | flags


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def sequence(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
NFC = {"type": "NFC"}
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")

VARIANTS = [
    {"name": "judge", "patch": {}},
    {"name": "added tokens with options", "patch": {"added_tokens": [
        added(VOCAB, "<|end|>", special=True),
        added(VOCAB + 1, "<|endless|>"),
        added(VOCAB + 2, "word", single_word=True),
        added(VOCAB + 3, "<L>", lstrip=True),
        added(VOCAB + 4, "<R>", rstrip=True),
        added(VOCAB + 5, "<B>", lstrip=True, rstrip=True, special=True),
        added(VOCAB + 6, "e\u0301x", normalized=True),
        added(VOCAB + 7, "a b", normalized=True),
        added(165, "\u00e9", single_word=True),  # in the vocabulary already, as a byte
        added(VOCAB + 8, "o\u0308"),
        added(VOCAB + 9, "<|end"),
        added(VOCAB + 10, "Norm", normalized=True, single_word=True, special=True),
    ]}},
    {"name": "no normalizer, GPT-2 split, prefix space", "patch": {
        "normalizer": None, "pre_tokenizer": BYTES | {"add_prefix_space": True, "use_regex": True}}},
    {"name": "Llama-3 split, ignore_merges", "ignore_merges": True,
     "patch": {"pre_tokenizer": sequence(split(LLAMA3), BYTES)}},
    {"name": "kept matches, two splits", "patch": {
        "normalizer": {"type": "Sequence", "normalizers": [NFC, NFC]},
        "pre_tokenizer": sequence(split(r"[^,]+", "Removed", True), split(r"\d{2}"), BYTES)}},
]

NEWER = ["\U0001e5d0", "\u1c89", "\U00010d40"]  # letters and a digit of Unicode 16, for Qwen's pattern only
ATOMS = [
    "a", "b", "x", "Q", "the", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u2003", "\u3000", "\x85", "\u200b",
    "'", "'s", "'LL", "'\u017f", "'\u212a", "\u017f", "\u212a", "\ufb01", "1", "12", "23", "\u0663", "\u2167",
    "\u00e9", "e\u0301", "o\u0308", "\u00e4", "\u0327", "\u0301", "\u0f71\u0f72", "\u1e69", "s\u0323\u0307",
    "\u6f22\u5b57", "\ud55c\uae00", "\u1112\u1161\u11ab", "\U0001f600", "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "!", "...", "-", "_", ",", "\ufffd", "\x00", "word", " word", "sword", "<L>", "<R>", "<B>", "<|end|>",
    "<|endless|>", "<|end", "<|im_end|>", "Norm", " Norm ", "a b", "Requirements", " Kubernetes",
]
FIXED = ["a" + "\u0301\u0327" * 25 + "b\u0323", "aword word word_ word", "<B>  <L>  <R>  <B> x"]


def cases(tok, rng, num, atoms):
    texts = ["".join(rng.choices(atoms, k=rng.randint(1, 12))) for _ in range(num)] + FIXED
    for text in texts:
        ids = tok.encode(text, add_special_tokens=False).ids
        yield {"text": text, "ids": ids, "decoded": tok.decode(ids, skip_special_tokens=False),
               "plain": tok.decode(ids, skip_special_tokens=True)}


def main():
    num = int(sys.argv[2]) if len(sys.argv) > 2 else 30
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    with open(sys.argv[1]) as f:
        judge = f.read()
    out = []
    for i, v in enumerate(VARIANTS):
        file = json.loads(judge) | v["patch"]
        file["model"]["ignore_merges"] = v.get("ignore_merges", False)
        tok = Tokenizer.from_str(json.dumps(file))
        head = {"name": v["name"], "ignore_merges": v.get("ignore_merges", False), "patch": v["patch"]}
        lines = ",\n".join(json.dumps(c) for c in cases(tok, rng, num, ATOMS + NEWER if i < 2 else ATOMS))
        out.append(json.dumps(head)[:-1] + ', "cases": [\n' + lines + "]}")
    print("[\n" + ",\n".join(out) + "\n]")


main()
