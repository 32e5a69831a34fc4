/**
 * The value of an expression with + - * / and parentheses. Reads it by itself instead of handing it to `eval`, because
 * a model wrote it.
 */
export function evaluateExpression(text: string): number {
  const tokens = text.match(/\d+(?:\.\d+)?|[-+*/()]|\S/g) ?? []
  let next = 0

  function sum(): number {
    let value = product()
    while (tokens[next] === '+' || tokens[next] === '-') {
      value += tokens[next++] === '+' ? product() : -product()
    }
    return value
  }

  function product(): number {
    let value = factor()
    while (tokens[next] === '*' || tokens[next] === '/') {
      if (tokens[next++] === '*') value *= factor()
      else value /= factor()
    }
    return value
  }

  function factor(): number {
    const token = tokens[next++]
    if (token === '-') return -factor()
    if (token === '(') {
      const value = sum()
      if (tokens[next++] !== ')') throw new Error(`a parenthesis is not closed in: ${text}`)
      return value
    }
    const value = Number(token)
    if (Number.isNaN(value)) throw new Error(`expected a number instead of "${token ?? 'the end'}" in: ${text}`)
    return value
  }

  const value = sum()
  if (next < tokens.length) throw new Error(`did not expect "${tokens[next]}" in: ${text}`)
  if (!Number.isFinite(value)) throw new Error(`there is no value of: ${text}`)
  return value
}
