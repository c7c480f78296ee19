"""Causes in images and their pulls. Pure."""

from __future__ import annotations

from typing import Final

from kitctl.state.why.rule import Family, Rule

_PULL: Final = r"(?:ErrImagePull|ImagePullBackOff)\b.*?"
_BESIDE: Final = "pod.sidecars or pod.initContainers"
_ANEW: Final = (
    "crictl rmi IMAGE on that machine (HOST in kitctl status), so that it is pulled anew; or kubectl cordon it, and "
    "kitctl restart"
)
IMAGES: Final = Family(
    "Images",
    "Pending",
    (
        Rule(
            "image-platform-mismatch",
            r"no match for platform in manifest",
            "the image has no build for the machine's processor",
            "an image for both kinds of processors, or scheduling.nodeSelector: {{kubernetes.io/arch: ...}}",
        ),
        Rule(
            "image-platform-mismatch",
            r"exec format error|processors of another kind",
            "the image is for another kind of processor than the machine's",
            "an image for both kinds, or scheduling.nodeSelector: {{kubernetes.io/arch: ...}}",
        ),
        # What containerd says of its own store comes before the registry's answers: it also ends with "not found".
        Rule(
            "image-content-missing-on-node",
            r"content digest sha256:\w+: not found|failed to get reader from content store"
            r"|parent snapshot \S+ does not exist",
            "a part of the image is missing in the machine's store of images",
            _ANEW,
        ),
        Rule(
            "node-disk-full",
            r"(?:ErrImagePull|ImagePullBackOff|CreateContainerError)\b.*no space left on device",
            "the machine's disk has no room for the image",
            "crictl rmi --prune on that machine (HOST in kitctl status); or kubectl cordon it, and kitctl restart",
        ),
        Rule(
            "image-pull-rate-limited",
            _PULL + r"(?:toomanyrequests|pull rate limit|429 Too Many)",
            "the registry lets this cluster pull no more for now",
            "--pull-secret of an account, which may pull more; or a mirror (docs/platform.md); it is tried again",
        ),
        Rule(
            "registry-speaks-plain-http",
            _PULL + r"server gave HTTP response to HTTPS client",
            "the registry speaks HTTP, and the machines ask by HTTPS",
            "give the registry a certificate, or have the machines' containerd trust it as insecure (hosts.toml)",
        ),
        Rule(
            "registry-certificate-untrusted",
            _PULL + r"(?:x509|certificate signed by unknown|failed to verify certificate)",
            "the machines do not trust the registry's certificate",
            "have its authority installed on the machines (containerd's hosts.toml, ca); or use a mirror "
            "(docs/platform.md)",
        ),
        Rule(
            "image-pull-interrupted",
            _PULL + r"(?:context canceled|pull QPS exceeded)",
            "the machine has broken off the pull of the image, and tries it again",
            "nothing, if that passes: large images need time, and several pulls at once wait for each other",
        ),
        Rule(
            "image-not-on-node",
            r"ErrImageNeverPull",
            "the image is not on the machine, and imagePullPolicy: Never forbids to pull it",
            "load it onto each machine (kind load docker-image), or imagePullPolicy: IfNotPresent",
        ),
        Rule(
            "image-or-registry-faulty",
            r"ImageInspectError|SignatureValidationFailed|RegistryUnavailable",
            "",
            "try another image or registry; if one machine alone says so: crictl rmi IMAGE there, or kubectl cordon it",
            seen="ImageInspectError: Failed to inspect image",
        ),
        Rule(
            "image-download-corrupted",
            _PULL
            + r"(?:unexpected EOF|invalid tar header|gzip: invalid|unexpected commit digest|failed size validation)",
            "the image arrives damaged, or cut short",
            f"where it stays so: {_ANEW}; if all machines say so, push the image again",
        ),
        Rule(
            "registry-response-not-image",
            _PULL + r"unexpected media type (\S+)",
            "the registry, or a proxy before it, answers with {0}, and not with the image",
            "check the image's name, and what answers there: curl -I https://REGISTRY/v2/ on that machine",
        ),
        Rule(
            "image-pull-unauthorized",
            _PULL + r"(?:[Uu]nauthorized|denied|forbidden|authentication required|no basic auth)",
            "the registry does not let this cluster pull the image",
            "--pull-secret with a Secret of the namespace that may pull it, or add that to its default "
            "ServiceAccount; a wrong name may look the same",
        ),
        Rule(
            "image-not-found",
            _PULL + r"(?:not found|manifest unknown|does not exist)",
            "the registry has no such image or tag",
            "--image with a name and a tag that exist",
            beside=f"correct its image in {_BESIDE}, or push it",
        ),
        Rule(
            "local-registry-connection-refused",
            _PULL + r"dial tcp (?:127\.0\.0\.1|\[::1\]):\d+: connect: connection refused",
            "the registry, which is asked at the machine's own address, has no such image or tag, or does not run",
            "correct the image's name or tag, or push it; if they are right, see to the registry, and to where the "
            "machines' containerd asks for it (hosts.toml): a mirror that lacks an image looks the same",
            beside=f"correct its image in {_BESIDE}, or push it; if it is right, see to the registry, and to where the "
            "machines' containerd asks for it (hosts.toml)",
        ),
        Rule(
            "registry-unreachable",
            _PULL + r"(?:no such host|i/o timeout|connection refused|deadline exceeded|x509)",
            "the machine does not reach the image's registry",
            "check the registry's name, the machine's network and its proxy; or use a mirror (docs/platform.md)",
        ),
        Rule(
            "image-pull-failed",
            r"ErrImagePull|ImagePullBackOff",
            "",
            "check the image's name, and the cluster's right to pull it",
            seen="ErrImagePull: ...",
        ),
        Rule(
            "image-name-invalid",
            r"InvalidImageName",
            "the image's name is not valid",
            "--image with a valid one",
            beside=f"correct its image in {_BESIDE}",
        ),
    ),
    of_ranks=False,
)
