/** The value of an arithmetic expression (+ - * / and parentheses), or undefined if the text is not one. */
export function evaluate(text: string): number | undefined {
  const reader = new Reader(text)
  const value = reader.sum()
  return reader.isAtEnd && Number.isFinite(value) ? value : undefined
}

/** Integers as they are, everything else with at most six decimals. */
export function formatNumber(value: number): string {
  return String(Number.isInteger(value) ? value : Number(value.toFixed(6)))
}

/** Recursive descent; anything unexpected makes the value NaN. The depth of parentheses is limited to 64. */
class Reader {
  readonly #text: string
  #at = 0
  #depth = 0

  constructor(text: string) {
    this.#text = text
  }

  get isAtEnd(): boolean {
    return this.#peek() === ''
  }

  sum(): number {
    let value = this.#product()
    for (;;) {
      const operator = this.#peek()
      if (operator !== '+' && operator !== '-') return value
      this.#at += 1
      const right = this.#product()
      value = operator === '+' ? value + right : value - right
    }
  }

  #product(): number {
    let value = this.#factor()
    for (;;) {
      const operator = this.#peek()
      if (operator !== '*' && operator !== '/') return value
      this.#at += 1
      const right = this.#factor()
      value = operator === '*' ? value * right : value / right
    }
  }

  #factor(): number {
    const next = this.#peek()
    if (next === '-') {
      this.#at += 1
      return -this.#factor()
    }
    if (next === '(' && this.#depth < 64) {
      this.#at += 1
      this.#depth += 1
      const value = this.sum()
      this.#depth -= 1
      if (this.#peek() !== ')') return Number.NaN
      this.#at += 1
      return value
    }
    return this.#number()
  }

  #number(): number {
    const start = this.#at
    while (this.#at < this.#text.length && '0123456789.'.includes(this.#text.charAt(this.#at))) this.#at += 1
    return start === this.#at ? Number.NaN : Number(this.#text.slice(start, this.#at))
  }

  /** The next character that is not a space; '' at the end. */
  #peek(): string {
    while (this.#text.charAt(this.#at) === ' ') this.#at += 1
    return this.#text.charAt(this.#at)
  }
}
