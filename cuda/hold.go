package cuda

import (
	"errors"
	"sync"
)

// holds is what keeps a device from waiting for its kernels.
type holds struct {
	mu    sync.Mutex
	num   int
	later []func() error // what was put off
}

// Hold says that from now on kernels of the device may wait for each other, until release is called. The driver's calls that
// give memory and code back wait for all running kernels; a rank that makes one while others wait for it would keep them
// waiting until their deadline. So while a device is held, Free, Pinned.Close and Module.Close return at once and what they
// give back goes when the last holder releases, or at a Reclaim. Worlds of several ranks hold their devices while they are
// open. release returns the errors of what was put off; it may be called more than once.
func (d *Device) Hold() (release func() error) {
	d.holds.mu.Lock()
	d.holds.num++
	d.holds.mu.Unlock()
	var once sync.Once
	return func() (err error) {
		once.Do(func() {
			d.holds.mu.Lock()
			d.holds.num--
			var late []func() error
			if d.holds.num == 0 {
				late, d.holds.later = d.holds.later, nil
			}
			d.holds.mu.Unlock()
			err = runAll(late)
		})
		return err
	}
}

// Held reports whether kernels of the device may wait for each other.
func (d *Device) Held() bool {
	d.holds.mu.Lock()
	defer d.holds.mu.Unlock()
	return d.holds.num > 0
}

// Reclaim gives back at once what Hold puts off. The caller knows that no kernel of the device waits for another rank now.
func (d *Device) Reclaim() error {
	d.holds.mu.Lock()
	late := d.holds.later
	d.holds.later = nil
	d.holds.mu.Unlock()
	return runAll(late)
}

// PutOff returns how many calls wait for the device to be released.
func (d *Device) PutOff() int {
	d.holds.mu.Lock()
	defer d.holds.mu.Unlock()
	return len(d.holds.later)
}

// whenReleased runs fn, now or when nobody holds the device.
func (d *Device) whenReleased(fn func() error) error {
	d.holds.mu.Lock()
	if d.holds.num > 0 {
		d.holds.later = append(d.holds.later, fn)
		d.holds.mu.Unlock()
		return nil
	}
	d.holds.mu.Unlock()
	return fn()
}

func runAll(list []func() error) error {
	var errs []error
	for _, fn := range list {
		errs = append(errs, fn())
	}
	return errors.Join(errs...)
}
