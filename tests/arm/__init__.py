"""A guest of 64-bit ARM: the image's agent on an emulated machine of that architecture, beside containerd.

It has no kubelet, no network and no systemd. Its first program is guest/init.sh, which runs guest/run.sh and sends
what came of it by a second disk. `make arm` boots it. What it is made of is kept in ~/.cache/numalign/lab.

    builds   what the guest is made of          boot   start it, take what it sends
"""
