/** Environment variables, passed to code that reads keys, proxies or settings from them. */
export type Variables = Readonly<Record<string, string | undefined>>
