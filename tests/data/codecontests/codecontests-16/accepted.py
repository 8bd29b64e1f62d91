def main():
    t1, t2, x1, x2, t0 = map(int, input().split())
    if t1 == t2:
        return x1, x2
    if t0 == t1:
        return x1, 0
    if t0 == t2:
        return 0, x2
    # cold : hot may be at most `hot` : `cold`; look for the largest ratio y1 / y2 within the taps' limits
    cold, hot = t0 - t1, t2 - t0
    best1, best2 = 0, x2
    if x1 < x2:
        for y1 in range(1, x1 + 1):
            y2 = -(-y1 * cold // hot)
            if y2 > x2:
                break
            if y1 * best2 >= best1 * y2:
                best1, best2 = y1, y2
    else:
        for y2 in range(1, x2 + 1):
            y1 = min(x1, y2 * hot // cold)
            if y1 * best2 > best1 * y2 or (y1 * best2 == best1 * y2 and y1 + y2 > best1 + best2):
                best1, best2 = y1, y2
    return best1, best2


print(*main())
