package simd

// Add adds a to dst: dst[i] += a[i].
func Add(dst, a []float32) {
	a = a[:len(dst)]
	if current == Go {
		addGo(dst, a)
		return
	}
	reading(dst, a)
	writing(dst)
	addVec(dst, a)
}

func addGo(dst, a []float32) {
	for i, v := range a {
		dst[i] += v
	}
}

// Mul multiplies dst by a: dst[i] *= a[i].
func Mul(dst, a []float32) {
	a = a[:len(dst)]
	if current == Go {
		mulGo(dst, a)
		return
	}
	reading(dst, a)
	writing(dst)
	mulVec(dst, a)
}

func mulGo(dst, a []float32) {
	for i, v := range a {
		dst[i] *= v
	}
}

// Scale multiplies dst by a number: dst[i] *= a.
func Scale(dst []float32, a float32) {
	if current == Go {
		scaleGo(dst, a)
		return
	}
	reading(dst)
	writing(dst)
	scaleVec(dst, a)
}

func scaleGo(dst []float32, a float32) {
	for i := range dst {
		dst[i] *= a
	}
}

// AxpyExact adds a multiple of x: dst[i] += a*x[i], the product rounded to float32 before the sum.
func AxpyExact(dst, x []float32, a float32) {
	x = x[:len(dst)]
	if current == Go {
		axpyGo(dst, x, a)
		return
	}
	reading(dst, x)
	writing(dst)
	axpyVec(dst, x, a)
}

func axpyGo(dst, x []float32, a float32) {
	for i, v := range x {
		dst[i] += float32(a * v)
	}
}

// Rotate turns each pair (lo[i], hi[i]) by an angle given by its cosine and sine, as rotary position embedding does with
// the two halves of a head: lo, hi = lo*cos - hi*sin, hi*cos + lo*sin, every product rounded.
func Rotate(lo, hi, cos, sin []float32) {
	n := len(lo)
	hi, cos, sin = hi[:n], cos[:n], sin[:n]
	if current == Go {
		rotateGo(lo, hi, cos, sin)
		return
	}
	reading(lo, hi)
	reading(cos, sin)
	writing(lo)
	writing(hi)
	rotateVec(lo, hi, cos, sin)
}

func rotateGo(lo, hi, cos, sin []float32) {
	for i := range lo {
		l, h, c, s := lo[i], hi[i], cos[i], sin[i]
		lo[i] = float32(l*c) - float32(h*s)
		hi[i] = float32(h*c) + float32(l*s)
	}
}
