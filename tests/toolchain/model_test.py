"""Goal    toolchain/model leaves a file under its name only if its SHA-256 is right, whatever the
           index, the disk, the current folder and a kill do; what arrived is kept; each refusal is
           one sentence with a remedy. toolchain/run fetches the model that -m names, and no other.
Method  the scripts in a tree of their own, with a table of tiny models, whose wheels lie in a
        folder that pip takes for the index."""
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORD = {name: f"the model {name} ".encode() * 999 for name in ("first", "second")}


def write_wheel(folder, package, content, n_files=1):
    module = package.replace("-", "_")
    info = f"{module}-1.0.dist-info"
    wheel = folder / f"{module}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as file:
        for i in range(n_files):
            file.writestr(f"{module}/part{i}.gguf", content)
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
                                          "Requires-Dist: absent-package\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
                                       "Tag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return wheel


class Tree:
    """A tree with toolchain/model, an index, and a table of models."""

    def __init__(self, folder):
        self.root, self.index = folder / "tree", folder / "index"
        self.models = self.root / "build/models"
        (self.root / "toolchain").mkdir(parents=True)
        self.index.mkdir()
        for name in ("model", "run", "common.sh", "packages"):
            shutil.copy(ROOT / "toolchain" / name, self.root / "toolchain")
        (self.root / "toolchain/models").write_text("")
        # The current folder has files that Python would take for its modules.
        self.beside = folder / "beside"
        self.beside.mkdir()
        for module in ("ensurepip", "pip", "random", "venv", "zipfile"):
            (self.beside / f"{module}.py").write_text("raise SystemExit('taken for a module')\n")

    def add(self, name, packages, content, sha256=None):
        sha256 = sha256 or hashlib.sha256(content).hexdigest()
        with (self.root / "toolchain/models").open("a") as table:
            table.write(f"model {name} {len(content)} {sha256} 'The {name}' 'Some Terms' 'A note' "
                        f"'*/*.gguf' {' '.join(p + '==1.0' for p in packages)}\n")

    def start(self, *arguments, **variables):
        environment = {**os.environ, "PIP_NO_CACHE_DIR": "1", "PIP_NO_INDEX": "1",
                       "PIP_FIND_LINKS": str(self.index), "PYTHONPATH": str(self.beside),
                       **variables}
        environment = {key: value for key, value in environment.items() if value}
        return subprocess.Popen([self.root / "toolchain/model", *arguments], env=environment,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                start_new_session=True, cwd=self.beside)

    def call(self, *arguments, **variables):
        process = self.start(*arguments, **variables)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def file(self, name):
        return self.models / f"{name}.gguf"


class Model(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.tree = Tree(pathlib.Path(cls.folder.name))
        # A run that was killed while it made its environment.
        (cls.tree.models / ".venv/bin").mkdir(parents=True)
        (cls.tree.models / ".venv/bin/python").write_text("")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def add(self, name, contents, sha256=None):
        """Adds a model of one package for each part; returns its packages and its content."""
        packages = [f"pkg-{name}-{i}" for i in range(len(contents))]
        for package, content in zip(packages, contents):
            write_wheel(self.tree.index, package, content)
        self.tree.add(name, packages, b"".join(contents), sha256)
        return packages, b"".join(contents)

    def refused(self, code, name, *words, **variables):
        got, out, err = self.tree.call(name, **variables)
        last = err.splitlines()[-1]
        self.assertEqual((got, out), (code, ""), err)
        for word in words:
            self.assertIn(word, last)
        self.assertFalse(self.tree.file(name).exists())

    def fetched(self, name, content, **variables):
        code, _, err = self.tree.call(name, **variables)
        self.assertEqual(code, 0, err)
        self.assertEqual(self.tree.file(name).read_bytes(), content)
        left = list((self.tree.models / ".parts").glob(f"*{name}*"))
        self.assertEqual(left, [])
        return err

    def test_whole(self):
        _, content = self.add("whole", [WORD["first"], WORD["second"]])
        said = self.fetched("whole", content)
        for words in ("The whole", "0.0 MB", "Some Terms", "A note", "SHA-256 verified"):
            self.assertIn(words, said)
        before = self.tree.file("whole").stat()
        said = self.fetched("whole", content, PIP_FIND_LINKS="/nowhere")
        self.assertEqual(self.tree.file("whole").stat().st_ctime_ns, before.st_ctime_ns)
        self.assertEqual(len(said.splitlines()), 1, said)

    def test_damaged_later(self):
        _, content = self.add("damaged-later", [WORD["first"]])
        self.tree.models.mkdir(parents=True, exist_ok=True)
        self.tree.file("damaged-later").write_bytes(content[:-1] + b"x")
        self.fetched("damaged-later", content)

    def test_wrong_sha(self):
        packages, _ = self.add("wrong", [WORD["first"]], "0" * 64)
        self.refused(1, "wrong", "SHA-256", "toolchain/model wrong")
        self.assertFalse((self.tree.models / f".parts/{packages[0]}==1.0").exists())

    def test_wheels_that_are_damaged(self):
        for name, code, where in (("cut-in-index", 69, "index"), ("cut-here", 1, "here")):
            with self.subTest(name):
                packages, content = self.add(name, [WORD["first"]])
                wheel = self.tree.index / f"{packages[0].replace('-', '_')}-1.0-py3-none-any.whl"
                whole = wheel.read_bytes()
                if where == "here":
                    kept = self.tree.models / f".parts/{packages[0]}==1.0"
                    kept.mkdir(parents=True)
                    (kept / wheel.name).write_bytes(whole[:-700])
                else:
                    wheel.write_bytes(whole[:-700])
                self.refused(code, name, f"toolchain/model {name} again")
                wheel.write_bytes(whole)
                self.fetched(name, content)

    def test_killed_between_packages(self):
        packages, content = self.add("killed", [WORD["first"], WORD["second"]])
        process = self.tree.start("killed")
        for line in process.stderr:
            if packages[1] in line:
                break
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        self.assertFalse(self.tree.file("killed").exists())
        # What a kill leaves of a copy, and of a model that was put together.
        aside = self.tree.models / ".parts/aside"
        aside.mkdir(exist_ok=True)
        (aside / f"{packages[1].replace('-', '_')}-1.0-py3-none-any.whl").write_bytes(b"PK")
        (self.tree.models / ".parts/killed").write_bytes(b"half")
        (self.tree.index / f"{packages[0].replace('-', '_')}-1.0-py3-none-any.whl").unlink()
        said = self.fetched("killed", content)
        self.assertNotIn(f"fetching {packages[0]}", said)

    def test_two_at_once(self):
        _, content = self.add("twice", [WORD["first"]])
        both = [self.tree.start("twice") for _ in range(2)]
        said = sorted(process.communicate(timeout=60)[1] for process in both)
        self.assertEqual([process.returncode for process in both], [0, 0], said)
        self.assertEqual(self.tree.file("twice").read_bytes(), content)
        self.assertEqual(sum("SHA-256 verified" in text for text in said), 1, said)
        self.assertEqual(sum("already" in text for text in said), 1, said)

    def test_no_network(self):
        self.tree.add("far", ["pkg-far"], WORD["first"])
        remedy = ("pkg-far", "PIP_INDEX_URL", "toolchain/model far again")
        self.refused(69, "far", "No matching distribution", *remedy)  # this index has none
        self.refused(69, "far", "does not answer", *remedy, PIP_NO_INDEX="", PIP_FIND_LINKS="",
                     PIP_INDEX_URL="http://127.0.0.1:9/", PIP_RETRIES="1")

    def test_wheel_with_other_files(self):
        for n_files in (0, 2):
            with self.subTest(n_files):
                name = f"files-{n_files}"
                packages, content = self.add(name, [WORD["first"]])
                write_wheel(self.tree.index, packages[0], content, n_files)
                self.refused(1, name, "toolchain/models", "not one file */*.gguf")
                self.assertFalse((self.tree.models / f".parts/{packages[0]}==1.0").exists())

    def test_wheel_that_unpacks_to_more(self):
        packages, _ = self.add("bomb", [WORD["first"]])
        write_wheel(self.tree.index, packages[0], bytes(20_000_000))
        with tempfile.TemporaryDirectory() as name:
            bounded = pathlib.Path(name) / "bash"  # under which no file has more than 4 MiB
            bounded.write_text(f'#!/bin/sh\nulimit -f 8192\nexec {shutil.which("bash")} "$@"\n')
            bounded.chmod(0o755)
            self.refused(1, "bomb", "SHA-256", PATH=f"{name}:{os.environ['PATH']}")

    def test_no_home_and_no_path(self):
        _, content = self.add("bare", [WORD["first"]])
        self.fetched("bare", content, HOME="", PATH="", TMPDIR="/nowhere")

    def test_folder_that_cannot_be_written(self):
        self.add("closed", [WORD["first"]])
        build = self.tree.root / "build"
        build.rename(self.tree.root / "kept")
        build.write_text("")
        try:
            self.refused(1, "closed", "build/models cannot be written", "as the user")
        finally:
            build.unlink()
            (self.tree.root / "kept").rename(build)

    def test_full_disk(self):
        self.add("full", [WORD["first"]])
        venv, kept = self.tree.models / ".venv", self.tree.models / ".kept"
        venv.rename(kept)
        (venv / "bin").mkdir(parents=True)
        (venv / "is_whole").write_text("")
        (venv / "bin/python").write_text(
            '#!/bin/sh\ncase $* in *download*) echo "ERROR: Could not install packages due to an '
            'OSError: [Errno 28] No space left on device" >&2; exit 1 ;; esac\n')
        (venv / "bin/python").chmod(0o755)
        self.refused(1, "full", "the disk is full", "toolchain/model full again")
        shutil.rmtree(venv)
        kept.rename(venv)

    def test_unknown(self):
        self.refused(1, "unheard-of", "unheard-of", "toolchain/model lists")
        self.add("heard-of", [WORD["first"]])
        code, _, _ = self.tree.call("heard-of", "unheard-of")
        self.assertEqual(code, 1)
        self.assertFalse(self.tree.file("heard-of").exists())

    def test_list(self):
        self.tree.add("listed", ["pkg-listed"], b"x" * 12_345_678)
        for argument in ("", "--help"):
            code, out, _ = self.tree.call(*([argument] if argument else []))
            self.assertEqual(code, 0)
            self.assertRegex(out, r"listed +12\.3 MB +no +Some Terms +The listed; A note")


class Run(unittest.TestCase):
    CASES = [
        (["-m", "a", "-p", "x"], "a"), (["--model", "a"], "a"), (["--model=a"], "a"),
        (["-ma"], "a"), (["-p", "x", "-m", "a"], "a"), (["-m", "./a"], ""), (["-m", "a.gguf"], ""),
        (["-m", "here"], ""), (["-m", "fetched"], ""), (["-p", "a"], ""), (["-m"], ""),
    ]

    def test_cases(self):
        with tempfile.TemporaryDirectory() as name:
            tree = Tree(pathlib.Path(name))
            tools = tree.root / "toolchain"
            (tools / "model").write_text('#!/bin/sh\necho "fetches $*"\n')
            with (tools / "common.sh").open("a") as common:
                common.write("\nneed_packages() { :; }\nconfigure() { :; }\nbuild() { :; }\n")
            tarn = tree.root / "build/release/tarn"
            tarn.parent.mkdir(parents=True)
            tarn.write_text('#!/bin/sh\necho "runs $*"\n')
            tarn.chmod(0o755)
            tree.models.mkdir()
            tree.file("fetched").write_text("")
            (tree.root / "here").write_text("")
            for arguments, fetched in self.CASES:
                with self.subTest(arguments):
                    done = subprocess.run([tools / "run", *arguments], cwd=tree.root, check=True,
                                          capture_output=True, text=True)
                    self.assertEqual(done.stderr, f"fetches {fetched}\n" if fetched else "")
                    self.assertEqual(done.stdout, f"runs run {' '.join(arguments)}\n")


if __name__ == "__main__":
    unittest.main()
