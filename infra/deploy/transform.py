"""Prints the CloudFormation template that a SAM template stands for, as JSON.

Linters look at SAM's own resources only in passing: a wrong enum value inside them, or a reference to nothing, goes
through. What CloudFormation will be handed has no such blind spots.

    transform.py template.yaml [Parameter=value ...]
"""

import json
import sys

from samtranslator.translator.managed_policy_translator import ManagedPolicyLoader
from samtranslator.translator.transform import transform
from samtranslator.yaml_helper import yaml_parse

# Never read: the translator only wants addresses that could be some.
PLACEHOLDER_CODE = "s3://bucket/key"
PLACEHOLDER_TEMPLATE = "https://s3.us-east-1.amazonaws.com/bucket/template.yaml"


class NoManagedPolicies(ManagedPolicyLoader):
    """The template names no managed policy by name alone, so IAM is not asked for them."""

    def __init__(self):
        super().__init__(iam_client=None)

    def load(self):
        return {}


def main(path, *overrides):
    with open(path, encoding="utf-8") as file:
        template = yaml_parse(file.read())
    template.setdefault("Globals", {}).setdefault("Function", {}).pop("CodeUri", None)
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Serverless::Function":
            resource["Properties"]["CodeUri"] = PLACEHOLDER_CODE
            # Read by `sam build` alone.
            resource.pop("Metadata", None)
        # A stack within the stack, linted by itself. `sam deploy` puts its template where this points.
        if resource["Type"] == "AWS::Serverless::Application":
            resource["Properties"]["Location"] = PLACEHOLDER_TEMPLATE
    json.dump(transform(template, dict(o.split("=", 1) for o in overrides), NoManagedPolicies()), sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
