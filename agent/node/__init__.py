"""What a node knows, and what each event makes of it. Pure: no clock, no lock, no file.

    (state, event, moment) -> (next state, the pods to report)

    state              all that is known of the node, as one frozen value
    transitions        one function for each event; early: of a pod that the runtime starts before the watch brings it
    answers            records what disk, kernel and other writers of cpusets answered
    deciding           one pod: exempt, admitted, refused, or waiting
    holding            what a pod that is in the ledger may hold now
    wait_queue         pods that wait for room, in order
    second_look        refused pods are decided again while none of their containers exists
    recover, adopt     the first state after a start: of the ledger, or of what runs
    migrate            the grants on a machine or settings that changed

Terms: a *transition* is such a function; a *moment* is the time and what was read of the world for it; a *record* is
the ledger's entry of a pod; a pod *leaves* when it ends, and its room is free when no process of it is left.

Forecasts (`agent.forecast`) run the same transitions on copies. A new rule belongs here if it needs the node's state,
and into `agent.core` if a request and a machine are enough.
"""
