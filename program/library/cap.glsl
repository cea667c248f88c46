// x kept within -cap and cap: cap · tanh(x / cap), where cap is above 0, else x.
float capped(float x, float cap) {
    if (!(cap > 0.0)) {
        return x;
    }
    float z = x / cap;
    float s = z * z;
    if (s < 0.0025) {
        return x * (1.0 - s * (1.0 / 3.0 - s * (2.0 / 15.0)));
    }
    float e = exp(-2.0 * abs(z)); // at most 1
    float t = cap * ((1.0 - e) / (1.0 + e));
    return x < 0.0 ? -t : t;
}
