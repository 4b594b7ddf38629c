package watchers

// unblind breaks the watches that say nothing, though the cluster answers: a proxy
// that forgot them, or a server that stopped feeding them. They resume from where
// they were. Called by the loop, for clusters that answer.
func (k *keeper) unblind() {
	var blind []*informer
	k.w.mu.Lock()
	r := k.lockedRun
	if r != nil {
		for _, i := range r.lockedInformers {
			if i.lockedReady && i.stream.Silent() >= k.w.o.Timings.Blind {
				blind = append(blind, i)
			}
		}
	}
	k.w.mu.Unlock()
	for _, i := range blind {
		k.w.m.blind.WithLabelValues(k.kind.GroupKind.String()).Inc()
		k.w.o.Logger.Info("a watch says nothing, resuming it", "cluster", k.c.name, "kind", k.kind.GroupKind.String(), "for", k.w.o.Timings.Blind)
		k.w.spawn(i.stream.Break) // It may wait for the network.
	}
}
