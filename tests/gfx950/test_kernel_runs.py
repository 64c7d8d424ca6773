"""`parity gfx950 run` and `diff`: launches, listings, and two sides of one kernel."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import triton

from verification import cli, kernel_runs

CASE = "rms_norm/rows=3,hidden=1000/bf16/normal/0"
ROOT = Path(__file__).resolve().parents[2]


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(list(map(str, arguments)))
    return ended.value.code or 0


@pytest.fixture
def changed(tmp_path, monkeypatch):
    """A clone whose last commit changed one kernel: eps is added twice."""
    clone = tmp_path / "clone"
    git = ["git", "-C", str(clone), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(clone)], check=True)
    kernel = clone / "fused/rms_norm.py"
    kernel.write_text((ROOT / "fused/rms_norm.py").read_text().replace("+ eps", "+ eps + eps"))
    subprocess.run([*git, "commit", "-qam", "eps twice"], check=True)
    monkeypatch.setattr(kernel_runs, "ROOT", clone)


def test_a_run_shows_launches_and_writes_counted_listings(tmp_path):
    file = tmp_path / "run.json"
    assert run("gfx950", "run", CASE, "--implementation", "triton", "--listing", tmp_path / "s", "--json", file) == 0
    (check,) = json.loads(file.read_text())["checks"]
    (launch,) = check["launches"]
    assert (launch["kernel"], launch["grid"], check["triton"]) == ("rms_norm_kernel", [3, 1, 1], triton.__version__)
    (listing,) = (tmp_path / "s").iterdir()
    lines = [line.split(maxsplit=1) for line in listing.read_text().splitlines()[1:]]
    assert sum(int(count) for count, _ in lines) == launch["executed"]
    assert any(text.startswith("s_endpgm") for _, text in lines)


def test_a_whole_operator_runs_on_its_representative_cases(capsys):
    assert run("gfx950", "run", "rms_norm", "--implementation", "triton", "--models", "seed=3,matrix=chained") == 0
    assert capsys.readouterr().out.count("holds") > 5


def test_a_candidate_that_is_wrong_does_not_hold(tmp_path, capsys):
    source = ROOT / "tests/verification/candidates/bad.py"
    assert run("gfx950", "run", CASE, "--candidate", source, "--implementation", "wrong_shape") == 1
    assert "does not hold" in capsys.readouterr().out


def test_a_script_runs_on_the_executor_and_its_fault_is_told(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("""
import sys, torch, triton, triton.language as tl
@triton.jit
def double(x, y, n, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)
x, y = torch.arange(100.0), torch.empty(100)
double[(1,)](x, y, int(sys.argv[1]), SIZE=128)
print("sum", y.sum().item())
""")
    words = [sys.executable, "-m", "verification", "gfx950", "run", str(script)]
    good = subprocess.run([*words, "100"], capture_output=True, text=True, cwd=ROOT)
    assert (good.returncode, good.stdout) == (0, "sum 9900.0\n")
    assert "double grid (1, 1, 1)" in good.stderr
    bad = subprocess.run([*words, "120"], capture_output=True, text=True, cwd=ROOT)
    assert bad.returncode == 1
    assert "bytes past the end of x [100]" in bad.stderr
    assert "Traceback" not in bad.stderr


def test_one_compiler_in_two_places_gives_the_same_code_and_bits(tmp_path, capsys):
    (tmp_path / "triton").symlink_to(Path(triton.__file__).parent)
    assert run("gfx950", "diff", CASE, "--triton", tmp_path, "--implementation", "triton") == 0
    assert "1 checks, 1 with the same code, resources and bits" in capsys.readouterr().out


def test_a_changed_kernel_is_shown_by_code_and_by_results(changed, capsys, tmp_path):
    file = tmp_path / "diff.json"
    words = ("--commit", "HEAD~1", "--commit", "HEAD", "--implementation", "triton", "--json", file)
    case = "rms_norm/rows=3,hidden=1000,eps=0.5/bf16/normal/0"
    assert run("gfx950", "diff", case, *words) == 1
    (check,) = json.loads(file.read_text())["checks"]
    assert check["launches"][0]["opcodes"]
    assert check["outputs"][0]["changed"] > 0
    assert check["outputs"][0]["ulps"] >= 1
    assert len(check["findings"]) == 1
    assert check["findings"][0].startswith("HEAD: ")
    said = capsys.readouterr().out
    assert "elements have other bits" in said


@pytest.mark.parametrize(("words", "message"), [
    (["diff", "rms_norm"], "name one or two of"),
    (["diff", "rms_norm", "--commit", "no-such-commit"], "no-such-commit"),
    (["diff", "rms_norm", "--triton", "no-such-folder"], "holds no triton package"),
    (["diff", "rms_norm", "--triton", ".", "--commit", "HEAD"], "name one or two of"),
    (["run", "rms_nrom"], "did you mean rms_norm"),
    (["run", "rms_norm", "words"], "only FILE.py takes further words"),
    (["run", "rms_norm", "--models", "matrix=exact"], "chooses no model"),
    (["run", "nowhere.py"], "there is no such file"),
])  # fmt: skip
def test_wrong_words_exit_2(words, message, capsys):
    assert run("gfx950", *words) == 2
    assert message in capsys.readouterr().err
