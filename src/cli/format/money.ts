/** US dollars with as many digits as matter: `$12.34`, `$0.0421`; `cost unknown` if no price is known. */
export function formatMoney(usd: number | null): string {
  if (usd === null) return 'cost unknown'
  if (usd === 0) return '$0'
  if (usd >= 1) return `$${usd.toFixed(2)}`
  return usd < 0.00005 ? '<$0.0001' : `$${usd.toFixed(4)}`
}
