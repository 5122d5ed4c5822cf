// Package bucket is the leaky bucket: limits and the slots they grant, and the JetStream queue behind each key.
package bucket
