#!/usr/bin/env python3
"""Tests the files that tools/train writes. Skipped (77) without torch, numpy and gguf.

Goal    a checkpoint and a GGUF file carry the weights and RoPE's base.
Method  a model of random weights is written as both, and read again.
"""
import importlib.util
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools" / "train"))


class WeightsTest(unittest.TestCase):
    def test_files_carry_the_base_and_the_weights(self):
        import bpe
        import checkpoint
        import gguf_file
        import model
        old = model.Model(len(bpe.load().tokens), 1000.0)
        with tempfile.TemporaryDirectory() as folder:
            checkpoint.save(f"{folder}/a.pt", old, 7)
            gguf_file.write(f"{folder}/a.gguf", old, 7, bpe.load())
            for name in ("a.pt", "a.gguf"):
                new = model.Model(len(bpe.load().tokens))
                self.assertEqual((checkpoint.load(f"{folder}/{name}", new), new.rope_base),
                                 (7, 1000.0))
                for key, weight in old.state_dict().items():
                    self.assertTrue((weight.half() == new.state_dict()[key].half()).all(), key)


if __name__ == "__main__":
    absent = [name for name in ("torch", "numpy", "gguf") if not importlib.util.find_spec(name)]
    if absent:
        print("skipped: these packages of Python are absent:", *absent)
        sys.exit(77)
    unittest.main()
