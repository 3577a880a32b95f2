"""Devices: those that numalign hands out, and those of the kubelet's plugins.

    provider       hints and grants, as the admission asks for them
    hints          where devices could lie; choose: which ones a container gets
    books          which are in use; kubelet: those that the kubelet chose already

Rules 6 of the kubelet.
"""
