package cuda

// CanAccess reports whether d's kernels can address peer's memory. A device can always address its own.
func (d *Device) CanAccess(peer *Device) (bool, error) {
	if d == peer {
		return true, nil
	}
	return CanAccess(d.info.Ordinal, peer.info.Ordinal)
}

// CanAccess reports whether kernels of one device can address another's memory, without making a context.
func CanAccess(from, to int) (bool, error) {
	if err := Init(); err != nil {
		return false, err
	}
	var can int32
	c := cuDeviceCanAccessPeer(&can, int32(from), int32(to))
	if c != success {
		return false, &Error{Call: "ask for peer access", Device: from, Code: c}
	}
	return can != 0, nil
}

// PeerAttribute is a CUdevice_P2PAttribute.
type PeerAttribute int32

// What can be asked about a pair of devices.
const (
	PeerPerformanceRank PeerAttribute = 1 // relative: 0 is the best link
	PeerAccess          PeerAttribute = 2
	PeerNativeAtomics   PeerAttribute = 3
)

// Peer asks about the link between two different devices.
func Peer(a PeerAttribute, from, to int) (int, error) {
	if err := Init(); err != nil {
		return 0, err
	}
	var v int32
	if c := cuDeviceGetP2PAttribute(&v, int32(a), int32(from), int32(to)); c != success {
		return 0, &Error{Call: "ask about a pair", Device: from, Code: c}
	}
	return int(v), nil
}

// EnablePeer lets d's kernels address peer's plain memory (Alloc). Mapped memory needs no such call: [Span.SetAccess]
// names its devices. Enabling twice is no error.
func (d *Device) EnablePeer(peer *Device) error {
	if d == peer {
		return nil
	}
	if c := cuCtxEnablePeerAccess(d.ctx, peer.ctx, 0); c != PeerEnabled {
		return d.checkf(c, "enable access to device %d", peer.info.Ordinal)
	}
	return nil
}
