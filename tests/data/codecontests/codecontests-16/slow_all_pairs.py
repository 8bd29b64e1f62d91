t1, t2, x1, x2, t0 = map(int, input().split())
best = None
for y1 in range(x1 + 1):
    for y2 in range(x2 + 1):
        water = y1 + y2
        if water == 0:
            continue
        heat = t1 * y1 + t2 * y2
        if heat < t0 * water:
            continue
        if best is None or heat * best[1] < best[0] * water or (heat * best[1] == best[0] * water and water > best[1]):
            best = (heat, water, y1, y2)
print(best[2], best[3])
