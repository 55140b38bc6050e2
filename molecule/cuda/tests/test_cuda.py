"""The toolkit is there at the wanted version, and logins find it."""

from __future__ import annotations


def test_toolkit_is_installed_and_held(host):
    names = host.check_output("dpkg-query -W -f '${Package}\\n' 'cuda-toolkit-*'").split()
    assert names
    assert set(names) & set(host.check_output("apt-mark showhold").split())


def test_login_finds_nvcc(host):
    assert "release" in host.check_output("bash -lc 'nvcc --version'")
