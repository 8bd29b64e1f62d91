# opens the cold tap as far as possible without looking for the closest temperature
t1, t2, x1, x2, t0 = map(int, input().split())
if t1 == t2:
    print(x1, x2)
elif t0 == t2:
    print(0, x2)
else:
    # open the cold tap as far as the hot one can keep up with it
    y1 = min(x1, x2 * (t2 - t0) // max(1, t0 - t1))
    y2 = -(-y1 * (t0 - t1) // (t2 - t0))
    print(y1, y2)
