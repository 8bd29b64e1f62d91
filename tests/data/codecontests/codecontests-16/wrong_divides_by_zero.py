# ZeroDivisionError when the wanted temperature is that of the hot water
t1, t2, x1, x2, t0 = map(int, input().split())
cold, hot = t0 - t1, t2 - t0
best1, best2 = 0, x2
for y1 in range(1, x1 + 1):
    y2 = -(-y1 * cold // hot)
    if y2 > x2:
        break
    if y1 * best2 >= best1 * y2:
        best1, best2 = y1, y2
print(best1, best2)
