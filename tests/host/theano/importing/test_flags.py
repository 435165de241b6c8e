"""Users can set the flags optdb.*, and wrong settings raise errors that help."""

from __future__ import annotations

import json

import pytest
import theano

import optdb
from optdb import flags
from tests.processes import output, python, python_path, run_code

SHOW = "import optdb, theano; print(theano.config.optdb.topo, theano.config.optdb.trace)"

#: Maps a wrong setting in THEANO_FLAGS to the error that importing Theano raises.
MISTAKES = {
    "optdb.tpoo=True": "optdb.tpoo: no such flag; did you mean optdb.topo?",
    "optdb.max_use=3": "optdb.max_use: no such flag; did you mean optdb.max_use_ratio?",
    "optdb.topo=maybe": "optdb.topo=maybe: optdb.topo is True or False",
    "optdb.enable=maybe": "optdb.enable: no such flag; optdb.topo=True turns the engine on. "
    "optdb.topo is True or False",
    "optdb.device=": "optdb.device=: a device is opencl, opencl<platform>:<device>, gpu, a driver (pocl, nvidia, ...), "
    "or part of a device's name",
    "optdb.device=cuda0": "optdb.device=cuda0: cuda0 is a device name of Theano's GPU back-end; write nvidia or gpu "
    "for the best such device, or a number, opencl<platform>:<device>. `python -m optdb devices` lists the devices",
    "optdb.device=opencl0": "optdb.device=opencl0: a numbered device is opencl<platform>:<device>, such as opencl0:0",
    "optdb.contexts=dev0": "optdb.contexts=dev0: 'dev0' is not name->device; write "
    "THEANO_FLAGS='optdb.contexts=dev0->opencl0:0;dev1->opencl0:1'",
    **{
        f"optdb.kernel_cache_size={size}": f"optdb.kernel_cache_size={size}: a size is an integer number of megabytes, "
        "such as 512, or 0 to disable the cache"
        for size in ("-1", "much", "1.5")
    },
}

#: Maps a setting of Theano's GPU back-end to the setting of optdb's flag that its error names.
SETTINGS_OF_BACKEND = {
    "device=opencl0:0": "optdb.device=opencl0:0",
    "device=opencl": "optdb.device=opencl",
    "device=cuda": "optdb.device=nvidia",
    "device=cuda1": "optdb.device=nvidia",
    "device=gpu": "optdb.device=gpu",
    "init_gpu_device=cuda": "optdb.device=nvidia",
    "contexts=dev0->cuda0;dev1->opencl0:1": "'optdb.contexts=dev0->nvidia;dev1->opencl0:1'",
}


@pytest.fixture(scope="module")
def errors():
    """Import Theano with each wrong setting in turn, in one process; map each setting to the error."""
    code = f"""
        import json, os, sys
        import optdb
        flags, errors = os.environ["THEANO_FLAGS"], {{}}
        for setting in {[*MISTAKES, *SETTINGS_OF_BACKEND]}:
            os.environ["THEANO_FLAGS"] = f"{{flags}},{{setting}}"
            for name in [name for name in sys.modules if name.partition(".")[0] == "theano"]:
                del sys.modules[name]
            try:
                import theano
            except optdb.flags.FlagError as error:
                errors[setting] = str(error)
        print(json.dumps(errors))
    """
    return json.loads(output(code))


@pytest.fixture(scope="module")
def defaults():
    """Return the values of optdb's flags if no flag is set, and Theano's list of all flags."""
    code = """
        import json
        import optdb, theano
        names = "topo", "trace", "device", "contexts", "kernel_cache_dir", "kernel_cache_size"
        print(json.dumps([{name: getattr(theano.config.optdb, name) for name in names}, str(theano.config)]))
    """
    return json.loads(output(code))


@pytest.mark.slow
def test_defaults(defaults):
    assert defaults[0] == {
        **{"topo": False, "trace": False, "device": "cpu", "contexts": ""},
        **{"kernel_cache_dir": "", "kernel_cache_size": 512},
    }


@pytest.mark.parametrize(("text", "value"), [("True", True), ("1", True), ("false", False), ("0", False)])
def test_spellings(text, value):
    assert flags.FLAGS[0].parse(text) is value
    assert flags.FLAGS[0].parse(value) is value


@pytest.mark.slow
def test_theano_flags_and_theanorc(tmp_path):
    (tmp_path / "rc").write_text("[optdb]\ntopo = True\ntrace = True\nmax_use_ratio = 7\n")
    env = {"THEANORC": str(tmp_path / "rc")}
    assert output(SHOW, env=env) == "True True"
    assert output(SHOW, env=env, flags="optdb.topo=False,optdb.position_cutoff=3") == "False True"


@pytest.mark.parametrize("setting", MISTAKES)
def test_mistakes_in_theano_flags(setting, errors):
    assert errors[setting] == MISTAKES[setting]


def test_a_mistake_ends_the_process():
    done = run_code(SHOW, flags="optdb.tpoo=True")
    assert done.returncode == 1
    assert done.stderr.strip().endswith("FlagError: optdb.tpoo: no such flag; did you mean optdb.topo?")
    assert "does not recognise" not in done.stderr


def test_mistakes_in_theanorc(tmp_path):
    (tmp_path / "rc").write_text("[DEFAULT]\nhere = /tmp\n[optdb]\ntrce = True\n")
    done = run_code(SHOW, env={"THEANORC": str(tmp_path / "rc")})
    assert done.stderr.strip().endswith("FlagError: optdb.trce: no such flag; did you mean optdb.trace?")


@pytest.mark.slow
def test_theano_still_warns_of_flags_it_does_not_know():
    assert "does not recognise this flag: nonsense" in run_code(SHOW, flags="nonsense=1").stderr


@pytest.mark.slow
def test_a_flag_without_its_section_names_ours():
    warned = run_code(SHOW, flags="topo=True,opdb.device=opencl,nonsense=1").stderr
    assert "topo: no such flag; did you mean optdb.topo?" in warned
    assert "opdb.device: no such flag; did you mean optdb.device?" in warned
    assert "optdb.nonsense" not in warned


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("device", "did you mean optdb.device?"),
        ("opdb.device", "did you mean optdb.device?"),
        ("opt_db.trce", "did you mean optdb.trace?"),
        ("opdb.nonsense", ""),
        ("nonsense", ""),
        ("gcc.cxxflags", ""),
    ],
)
def test_a_misspelt_section(name, guess):
    assert flags.misspelt_section(name) == guess


def test_unlike_names_are_not_suggested():
    """Names are not similar only because they have the same prefix "optdb.", which all flags have."""
    assert str(flags.unknown("optdb.pallets", ["optdb.trace", "optdb.topo"])).endswith(
        "no such flag; the flags are optdb.topo, optdb.trace"
    )


@pytest.mark.slow
def test_an_error_leaves_theano_importable():
    code = """
        import os, optdb
        try:
            import theano
        except optdb.flags.FlagError:
            os.environ["THEANO_FLAGS"] = os.environ["THEANO_FLAGS"].replace("tpoo", "topo")
        import theano
        print(theano.config.optdb.topo)
    """
    assert output(code, flags="optdb.tpoo=True") == "True"


@pytest.mark.slow
def test_only_live_flags_change_later():
    code = """
        import optdb, theano
        theano.config.optdb.trace = True
        print(theano.config.optdb.trace)
        for name, value in [("topo", True), ("device", "opencl"), ("tpoo", True)]:
            try:
                setattr(theano.config.optdb, name, value)
            except optdb.flags.FlagError as error:
                print(error)
        try:
            theano.config.optdb.trace = "perhaps"
        except optdb.flags.FlagError as error:
            print(error)
    """
    assert output(code).splitlines() == [
        "True",
        "optdb.topo is read once, when Theano is imported.",
        "The cure: call optdb.enable() or optdb.disable()",
        "optdb.device is read once, when Theano is imported.",
        "The cure: start again with THEANO_FLAGS=optdb.device=opencl",
        "optdb.tpoo: no such flag; did you mean optdb.topo?",
        "optdb.trace=perhaps: there is no topic 'perhaps'; did you mean phases? The flag takes True, False, or topics "
        "joined by +: rewrites[:rules or ops], phases, lifts[:ops or lifters], launches[:kernels], compilers, shared",
    ]


@pytest.mark.slow
def test_flags_are_documented_in_theanos_own_list(defaults):
    listed = defaults[1]
    assert "optdb.topo (True or False)" in listed
    assert "optdb.contexts (name->device;name->device;...)" in listed
    assert "optdb.kernel_cache_size (a number of megabytes)" in listed


def test_unknown_names_that_resemble_nothing():
    assert "the flags are a.b" in str(flags.unknown("zzz", ["a.b"]))


@pytest.mark.slow
def test_devices_and_contexts():
    show = "import optdb, theano; print(theano.config.optdb.device, theano.config.optdb.contexts)"
    setting = "optdb.device=dev1,optdb.contexts=dev0->opencl;dev1->opencl[1/1]"
    assert output(show, flags=setting) == "dev1 dev0->opencl;dev1->opencl[1/1]"


@pytest.mark.parametrize("setting", SETTINGS_OF_BACKEND)
def test_flags_of_theanos_gpu_backend_name_ours(setting, errors):
    assert f"{setting}: this flag is for Theano's own GPU back-end" in errors[setting]
    assert f"The cure: set optdb's flag instead, THEANO_FLAGS={SETTINGS_OF_BACKEND[setting]};" in errors[setting]


@pytest.mark.slow
def test_flags_of_theanos_gpu_backend_are_left_to_it_where_it_is_installed(tmp_path):
    (tmp_path / "pygpu").mkdir()
    (tmp_path / "pygpu" / "__init__.py").write_text("")
    env = {"PYTHONPATH": python_path(tmp_path)}
    done = run_code("import optdb, theano; print(theano.config.device)", flags="device=cuda", env=env)
    assert done.stdout == "cuda\n"
    assert "FlagError" not in done.stderr


@pytest.mark.slow
def test_theanos_other_checks_of_devices_stay():
    assert "Valid options start with" in run_code(SHOW, flags="device=nonsense").stderr
    assert output("import optdb, theano; print(theano.config.device)", flags="device=cpu") == "cpu"


@pytest.mark.slow
def test_an_unknown_mode_lists_all():
    message = run_code(SHOW, flags="mode=FAST_RNU").stderr
    assert "mode=FAST_RNU: no such mode; did you mean FAST_RUN?\nThe modes are " in message
    assert "OPENCL" in message
    assert "TOPO" in message
    assert output("import optdb, theano; print(theano.config.mode)", flags="mode=TOPO") == "TOPO"


def test_an_unknown_mode_in_python():
    with pytest.raises(flags.UnknownMode, match="TOOP: no such mode; did you mean TOPO") as caught:
        optdb.mode("TOOP")
    assert "OPENCL" in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert isinstance(optdb.mode("Mode"), theano.Mode)
    with pytest.raises(flags.UnknownMode, match="FAST_RNU: no such mode; did you mean FAST_RUN"):
        theano.function([], [], mode="FAST_RNU")
    theano.function([], [], mode="FAST_COMPILE")


def test_a_flag_that_is_overridden_is_checked_all_the_same(tmp_path):
    (tmp_path / "script.py").write_text("import theano\n")
    done = python("-m", "optdb", "run", str(tmp_path / "script.py"), flags="optdb.topo=Ture")
    assert done.returncode == 1
    assert done.stderr.endswith("FlagError: optdb.topo=Ture: optdb.topo is True or False\n")


@pytest.mark.slow
def test_the_kernel_cache():
    show = "import optdb, theano; print([theano.config.optdb.kernel_cache_dir, theano.config.optdb.kernel_cache_size])"
    assert output(show, flags="optdb.kernel_cache_dir=/some/where,optdb.kernel_cache_size=0") == "['/some/where', 0]"
