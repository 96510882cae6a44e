package sampling

import "math"

// powers is 2^(i/64).
var powers = func() (t [64]float64) {
	for i := range t {
		t[i] = math.Exp2(float64(i) / 64)
	}
	return t
}()

// expNeg returns e^x for x <= 0 with a relative error below 1e-10, in a fraction of math.Exp's time; 0 below -700 and for
// NaN. x is split into a multiple of ln2/64, looked up, and a rest of at most 0.0055, for which four terms of the series do.
func expNeg(x float64) float64 {
	if !(x > -700) {
		return 0
	}
	n := int(x*(64/math.Ln2) - 0.5)
	r := x - float64(n)*(math.Ln2/64)
	scale := math.Float64frombits(uint64(1023+n>>6) << 52)
	return scale * powers[n&63] * (1 + r*(1+r*(1./2+r*(1./6))))
}
