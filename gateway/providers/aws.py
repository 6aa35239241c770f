"""Amazon's cloud: where its regions are, and what follows for a provider from the one that it is used in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gateway.providers.sigv4 import Credential, Signer

# The country of each region, as AWS's "Regions and Availability Zones" names them, or the union that it is a member of;
# those whose addresses end alike.
REGIONS: Mapping[str, str] = {
    "af-south-1": "ZA",
    "ap-east-1": "HK",
    "ap-east-2": "TW",
    "ap-northeast-1": "JP",
    "ap-northeast-2": "KR",
    "ap-northeast-3": "JP",
    "ap-south-1": "IN",
    "ap-south-2": "IN",
    "ap-southeast-1": "SG",
    "ap-southeast-2": "AU",
    "ap-southeast-3": "ID",
    "ap-southeast-4": "AU",
    "ap-southeast-5": "MY",
    "ap-southeast-6": "NZ",
    "ap-southeast-7": "TH",
    "ca-central-1": "CA",
    "ca-west-1": "CA",
    "eu-central-1": "EU",
    "eu-central-2": "CH",
    "eu-north-1": "EU",
    "eu-south-1": "EU",
    "eu-south-2": "EU",
    "eu-west-1": "EU",
    "eu-west-2": "GB",
    "eu-west-3": "EU",
    "il-central-1": "IL",
    "me-central-1": "AE",
    "me-south-1": "BH",
    "mx-central-1": "MX",
    "sa-east-1": "BR",
    "us-east-1": "US",
    "us-east-2": "US",
    "us-gov-east-1": "US",
    "us-gov-west-1": "US",
    "us-west-1": "US",
    "us-west-2": "US",
}


@dataclass(frozen=True, slots=True)
class AwsService:
    """One of Amazon's services.

    Attributes:
        endpoint: How its host names begin.
        signing_name: Its name in signatures.
    """

    endpoint: str
    signing_name: str

    def base_url(self, region: str) -> str:
        """Where it is in *region*, one of `REGIONS`."""
        return f"https://{self.endpoint}.{region}.amazonaws.com"

    def signer(self, region: str, credential: Credential) -> Signer:
        """What signs requests to it."""
        return Signer(credential, region, self.signing_name)


BEDROCK_RUNTIME = AwsService("bedrock-runtime", "bedrock")

# What an inference profile's id begins with says where its calls may be computed, which is more than the region that is
# asked: "Supported Regions and models for inference profiles" in the user guide of Bedrock.
AREAS: Mapping[str, str] = {
    "global": "GLOBAL",
    "apac": "APAC",
    "au": "AU",
    "ca": "CA",
    "eu": "EU",
    "jp": "JP",
    "us": "US",
    "us-gov": "US",
}
UNKNOWN = "UNKNOWN"
_PROFILE = "inference-profile/"  # in an ARN, before the id
# An area and a vendor, each with its dot; the dot in a base model's version stands behind digits (`deepseek.v3.2`).
_IN_SOME_AREA = re.compile(r"[a-z-]+\.(?:[a-z]+|ai21)\.")
_OWN_PROFILE = "application-inference-profile/"


def area(model: str) -> str | None:
    """
    Where calls to *model* may be computed; None where that is the region that is asked, by all that its name says.

    An application's own inference profile has a name that says nothing: `UNKNOWN`.
    """
    if _OWN_PROFILE in model:
        return UNKNOWN
    name = model.rpartition(_PROFILE)[2]
    prefix = name.partition(".")[0]
    return AREAS.get(prefix, UNKNOWN) if prefix in AREAS or _IN_SOME_AREA.match(name) else None
