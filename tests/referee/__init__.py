"""The referee: sequences of pods with what a kubelet's managers must answer, run on any kind of node and compared."""
