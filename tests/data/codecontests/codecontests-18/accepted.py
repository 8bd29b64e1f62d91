import sys


def carries(low, bound):
    """Number of pairs with low[i] + low[j] >= bound, for low in increasing order."""
    count = 0
    i, j = 0, len(low) - 1
    while i < j:
        if low[i] + low[j] >= bound:
            count += j - i
            j -= 1
        else:
            i += 1
    return count


def main():
    data = list(map(int, sys.stdin.buffer.read().split()))
    n = data[0]
    a = data[1 : n + 1]
    answer = 0
    for power in range(25):
        bit = 1 << power
        # a is in the order of its lower bits, as in a radix sort
        into = carries([value & (bit - 1) for value in a], bit)
        zeros = [value for value in a if not value & bit]
        ones = [value for value in a if value & bit]
        if (into + len(ones) * (n - 1)) % 2:
            answer |= bit
        a = zeros + ones
    print(answer)


main()
