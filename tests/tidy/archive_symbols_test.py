#!/usr/bin/env python3
"""Tests archive_symbols.py.

Goal    an archive that exports too much or too little, needs a forbidden symbol, or holds state is
        reported, and a good one is not.
Method  listings as nm and objdump print them, each with one fault.
"""
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
import archive_symbols  # noqa: E402

HEADER = """/* tarn_in_a_comment(int); */
TARN_API int32_t tarn_open(const tarn_options* options,
                           tarn_engine** engine_out);
TARN_API const char* tarn_error_text(void);
typedef void (*tarn_log_fn)(void* context);
"""
GOOD = """
libtarn.o:
0000000000000010 T tarn_open
0000000000000020 T tarn_error_text
0000000000000030 t _ZN4tarn5innerEv
                 U io_uring_queue_init
                 U memcpy
"""
STATE_GOOD = (
    "0000000000000000 l    d  .bss\t0000000000000000 .bss\n"
    "0000000000000000 l     O .data.rel.ro\t0000000000000020 vtable for tarn::X\n"
    "0000000000000000 l     O .rodata\t0000000000000020 tarn::kTable\n"
    "0000000000000000 l     O .tbss\t0000000000000008 tarn::(anonymous namespace)::t_sink\n")


class ArchiveSymbolsTest(unittest.TestCase):
    def one_problem(self, listing, word):
        found = list(archive_symbols.name_problems(listing, HEADER))
        self.assertEqual(len(found), 1, found)
        self.assertIn(word, found[0])

    def test_a_good_archive_has_no_problem(self):
        self.assertEqual(list(archive_symbols.name_problems(GOOD, HEADER)), [])
        self.assertEqual(list(archive_symbols.state_problems(STATE_GOOD)), [])

    def test_what_is_exported(self):
        self.one_problem(GOOD + "0000000000000040 T tarn_secret\n", "tarn_secret")
        self.one_problem(GOOD + "0000000000000040 W _ZN4tarn1fEv\n", "_ZN4tarn1fEv")
        self.one_problem(GOOD + "0000000000000040 u _ZN4tarn1xE\n", "_ZN4tarn1xE")
        self.one_problem(GOOD.replace("T tarn_open", "t tarn_open"), "tarn_open")

    def test_what_is_needed(self):
        for names in archive_symbols.FORBIDDEN.values():
            for name in names.split():
                with self.subTest(name=name):
                    self.one_problem(GOOD + f"                 U {name}@GLIBC_2.2.5\n", name)

    def test_state(self):
        for section in (".bss", ".data", ".bss.counter", ".tbss"):
            line = f"0000000000000000 l     O {section}\t0000000000000004 tarn::counter\n"
            self.assertEqual(len(list(archive_symbols.state_problems(STATE_GOOD + line))), 1)

    def test_what_nvcc_adds_is_excused_in_a_build_with_cuda_alone(self):
        names = GOOD + "                 U atexit@GLIBC_2.2.5\n"
        state = STATE_GOOD + (
            "0000000000000000 l     O .bss\t0000000000000008 __cudaFatCubinHandle\n"
            "0000000000000000 l     O .bss\t0000000000000008 __device_stub__Zprobe(int)::__tmp\n")
        self.one_problem(names, "atexit")
        self.assertEqual(len(list(archive_symbols.state_problems(state))), 2)
        cuda = (archive_symbols.CUDA_NAMES, archive_symbols.CUDA_STATE)
        self.assertEqual(list(archive_symbols.name_problems(names, HEADER, cuda[0])), [])
        self.assertEqual(list(archive_symbols.state_problems(state, cuda[1])), [])
        counter = state + "0000000000000000 l     O .bss\t0000000000000004 tarn::counter\n"
        self.assertEqual(len(list(archive_symbols.state_problems(counter, cuda[1]))), 1)

    def test_a_header_that_cannot_be_read_is_a_problem(self):
        found = list(archive_symbols.name_problems("", "nothing here"))
        self.assertEqual(len(found), 1)


if __name__ == "__main__":
    unittest.main()
