"""To the API server: what each pod carries, Events, and what is done to refused pods.

    pod_reporter       takes the engine's decisions and the watch's pods; makes reports, Events and actions of them
    publisher          the queue and its thread: sends, retries, gives up on pods that are gone
    fair_queue         which request is next (pure); notices: which Event is next
    pod_requests       the requests about one pod, each with its uid
    overwritten        pods that lost their report to another writer
    refusal_limiter    how many pods of one owner were refused within an hour
    cleanup            deletes failed pods that numalign ended, where the settings ask for it

Terms: a *report* (`agent.kube.pod_report.PodReport`) is the annotations and conditions that one pod shall carry; a
*notice* is an Event that waits; an *action* ends, evicts or deletes a pod; a *job* is one of these with its due time.

Of each pod only the newest report counts, so that an outage of any length ends in one request per pod. A caller never
waits: all of it goes into the queue, and one thread sends. Limits, delays and the order may be changed here. What a
report says is `agent.kube.pod_report`'s; which pods are refused is the engine's.
"""
