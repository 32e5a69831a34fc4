import { MillraceError } from '../../errors/index.ts'

/** Where clients reach a gateway, without a slash at its end. A path is that of a proxy, who takes it off again. */
export function checkedPublicUrl(text: string): string {
  const url = URL.parse(text)
  const isPlain = url !== null && !url.username && !url.password && !/[?#]/.test(text)
  if (isPlain && (url.protocol === 'http:' || url.protocol === 'https:')) return url.href.replace(/\/+$/, '')
  // It may be a password that is wrong with it.
  const shown = text.includes('@') ? 'what was given' : `"${text}"`
  throw new MillraceError(
    'config_invalid',
    `${shown} is no public url: write it like https://gateway.example.com, without a query, a fragment or a password`,
  )
}
