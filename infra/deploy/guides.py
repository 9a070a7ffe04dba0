"""Checks the commands in the guides without running them: a command that is written wrong costs its reader an hour.

Shell parses every block. A script that is called exists. Of `aws` and `sam` every command exists, and has every option that
it is given. What is handed to a template by its name is a parameter of one.

    guides.py GUIDE.md ...
"""

import functools
import itertools
import pathlib
import re
import subprocess
import sys

import botocore.session
from botocore import xform_name
from samtranslator.yaml_helper import yaml_parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEMPLATES = ["template.yaml", "infra/network.yaml", *sorted(str(p) for p in ROOT.glob("infra/examples/*.yaml"))]

# What the AWS CLI has beside the services' own operations.
OF_EVERY_COMMAND = {"query", "output", "region"}
OF_ITS_OWN = {
    "cloudformation deploy": {"stack-name", "template-file", "parameter-overrides", "capabilities"},
    "ec2 authorize-security-group-ingress": {"protocol", "port", "source-group"},
}


def blocks(text):
    """The shell of a guide: its blocks, and commands inside its sentences."""
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S):
        yield block
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    for span in re.findall(r"`((?:aws|sam) [^`]+)`", prose):
        yield " ".join(span.split())


def commands(shell, program):
    """The words of each call of a program, without what is quoted: quotes hold values, and options stand outside."""
    shell = re.sub(r"(^|\s)#.*", "", shell.replace("\\\n", " "), flags=re.M)
    for match in re.finditer(rf"(?:^|[\s(;|]){program} (?=[a-z])", shell):
        unquoted, quote = [], None
        for character in shell[match.end() :]:
            if quote:
                quote = None if character == quote else quote
            elif character in "'\"":
                quote = character
                unquoted.append("_")
            elif character in "\n)|;":
                break
            else:
                unquoted.append(character)
        yield "".join(unquoted).split()


def options(words):
    return {word[2:].split("=")[0] for word in words if word.startswith("--")}


@functools.cache
def service(name):
    return botocore.session.get_session().get_service_model(name)


def faults_of_aws(words):
    command = " ".join(words[:2])
    known = OF_EVERY_COMMAND | OF_ITS_OWN.get(command, set())
    operations = {xform_name(name, "-"): name for name in service(words[0]).operation_names}
    if words[1] in operations:
        known |= {xform_name(name, "-") for name in service(words[0]).operation_model(operations[words[1]]).input_shape.members}
    elif command not in OF_ITS_OWN:
        return [f"there is no `aws {command}`"]
    return [f"`aws {command}` has no --{option}" for option in sorted(options(words) - known)]


@functools.cache
def help_of_sam(command):
    """What `sam ... --help` says, or None: it makes its options only when it is called."""
    called = subprocess.run(["sam", *command, "--help"], text=True, capture_output=True)
    return None if called.returncode else called.stdout


def faults_of_sam(words):
    command = tuple(itertools.takewhile(lambda word: re.fullmatch(r"[a-z-]+", word) and word[0] != "-", words))
    told = help_of_sam(command)
    if told is None:
        return [f"there is no `sam {' '.join(command)}`"]
    known = set(re.findall(r"--([a-z0-9-]+)", told))
    return [f"`sam {' '.join(command)}` has no --{option}" for option in sorted(options(words) - known)]


def parameters():
    return {name for path in TEMPLATES for name in yaml_parse((ROOT / path).read_text()).get("Parameters", {})}


def faults(shell):
    parsed = subprocess.run(["bash", "-n"], input=shell, text=True, capture_output=True)
    if parsed.returncode:
        return [parsed.stderr.strip()]
    found = []
    shell = shell.replace("\\\n", " ")
    for script in re.findall(r"(?:^|\$\(|[\s(])((?:infra|tests|fuzz)/[\w./-]+)", shell, re.M):
        if not (ROOT / script).exists():
            found.append(f"{script} is not there")
    for program, check in (("aws", faults_of_aws), ("sam", faults_of_sam)):
        for words in commands(shell, program):
            found += check(words)
            overrides = words[words.index("--parameter-overrides") + 1 :] if "--parameter-overrides" in words else []
            for word in overrides:
                if word.startswith("--"):
                    break
                if "=" in word and word.split("=")[0] not in parameters():
                    found.append(f"no template has a parameter {word.split('=')[0]}")
    return found


def main(paths):
    count, found = 0, []
    for path in paths:
        for shell in blocks(pathlib.Path(path).read_text(encoding="utf-8")):
            count += 1
            found += [f"{path}: {fault}" for fault in faults(shell)]
    if found:
        raise SystemExit("\n".join(found))
    # A change of how guides are written must not turn this into a check of nothing.
    if not count:
        raise SystemExit("there is no command in " + ", ".join(paths))
    print(f"{count} blocks and commands")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main(sys.argv[1:])
