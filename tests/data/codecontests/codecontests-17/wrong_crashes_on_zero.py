# min() of nothing when the number is 0
digits = sorted(input())
answer = input()
first = min(digit for digit in digits if digit != "0")
digits.remove(first)
print("OK" if first + "".join(digits) == answer else "WRONG_ANSWER")
